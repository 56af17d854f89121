-- Makes what follows in a function that sets its own lock_timeout give up each wait for a lock after p_longest at most: it shortens what
-- holds, and never lengthens it.
-- grants: none
create or replace function sluicegate.wait_at_most(p_longest interval) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_now interval := current_setting('lock_timeout')::interval;
begin
    -- 0 is to wait for ever.
    if v_now = '0' or v_now > p_longest then
        -- Until the calling function ends, whose own setting is put back then.
        perform set_config('lock_timeout', (extract(epoch from p_longest) * 1000)::integer || 'ms', true);
    end if;
end
$$;

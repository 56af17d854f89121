-- check_policy for a session that claims: once a second at most. In between, a claim still checks each lane it takes under its lock;
-- this finds what is wrong with the others. Takes no lock.
-- grants: none
create or replace function sluicegate.check_policy_lately(p_queue_id bigint) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_name text := format('sluicegate.checked_%s', p_queue_id);
    v_kept text := current_setting(v_name, true);
    -- The machine's clock: a test's may stand still, and then nothing would ever be checked again.
    v_now double precision := extract(epoch from clock_timestamp());
begin
    -- The session may have put anything there.
    if v_kept ~ '^\d{1,12}(\.\d{1,9})?$' and v_now - v_kept::double precision between 0 and 1 then
        return;
    end if;
    perform sluicegate.check_policy(p_queue_id);
    perform set_config(v_name, v_now::text, false);
end
$$;

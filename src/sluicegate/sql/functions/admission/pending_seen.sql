-- pending_count for polls of a closed queue: a session that has counted beyond 1,000 within the last two seconds, and still finds a pending
-- job, says so again without counting. Anything less is counted. Takes no lock.
-- grants: none
create or replace function sluicegate.pending_seen(p_queue_id bigint, p_now timestamptz, out pending bigint, out exact boolean)
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_name text := format('sluicegate.pending_%s', p_queue_id);
    -- The machine's clock: a test's may stand still, and then nothing would ever be counted again.
    v_now double precision := extract(epoch from clock_timestamp());
    -- Anybody may set it: what is not a number is no memory.
    v_seen double precision := coalesce(substring(current_setting(v_name, true) from '^[0-9]{1,12}'), '0')::double precision;
begin
    if v_now - v_seen between 0 and 2
        and exists (select from sluicegate.job j where j.queue_id = p_queue_id and j.state = 'pending')
    then
        pending := 1000;
        exact := false;
        return;
    end if;
    select c.pending, c.exact into pending, exact from sluicegate.pending_count(p_queue_id, p_now) c;
    if not exact then
        perform set_config(v_name, floor(v_now)::bigint::text, false);
    end if;
end
$$;

-- Takes the hints away above which a job has just become pending, so that it is found at once. Never waits: it takes
-- the writer's lock of ready_looked, or else leaves a hint that lives for under a second. So it does under an older
-- snapshot than READ COMMITTED gives, where the hint cannot be changed without a serialization failure.
-- grants: none
create or replace function sluicegate.ready_below(p_job_ids bigint[]) returns void
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_hint record;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        return;
    end if;
    for v_hint in
        select distinct c.queue_id, c.class
        from unnest(p_job_ids) i
        cross join lateral (select * from sluicegate.job j where j.id = i offset 0) j
        join sluicegate.ready_cursor c on c.queue_id = j.queue_id and c.class = j.class
        where j.state = 'pending' and (j.priority, j.run_at, j.id) < (c.priority, c.run_at, c.id)
            and c.looked_at > clock_timestamp() - interval '1 second'
        order by 1, 2
    loop
        if pg_try_advisory_xact_lock(hashint8(v_hint.queue_id), hashtext('ready_cursor ' || v_hint.class)) then
            update sluicegate.ready_cursor c set looked_at = '-infinity'
            where c.queue_id = v_hint.queue_id and c.class = v_hint.class;
        end if;
    end loop;
end
$$;

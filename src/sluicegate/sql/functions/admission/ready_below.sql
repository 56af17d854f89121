-- Takes the hints away above which a job has just become pending, so that it is found at once. Never waits: it takes
-- the writer's lock of ready_looked, or else leaves a hint that lives for under a second.
-- grants: none
create or replace function sluicegate.ready_below(p_job_ids bigint[]) returns void
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
declare
    v_hint record;
begin
    for v_hint in
        select distinct c.queue_id, c.class
        from sluicegate.ready_cursor c
        join sluicegate.job j on j.queue_id = c.queue_id and j.class = c.class and j.state = 'pending'
        where j.id = any (p_job_ids) and (j.priority, j.run_at, j.id) < (c.priority, c.run_at, c.id)
            and c.looked_at > clock_timestamp() - interval '1 second'
        order by 1, 2
    loop
        if pg_try_advisory_xact_lock(sluicegate.request_key(v_hint.queue_id, 'ready_cursor ' || v_hint.class)) then
            update sluicegate.ready_cursor c set looked_at = '-infinity'
            where c.queue_id = v_hint.queue_id and c.class = v_hint.class;
        end if;
    end loop;
end
$$;

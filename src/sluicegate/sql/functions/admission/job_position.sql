-- How many jobs are claimed before a job that waits, if nothing changes: ahead of its queue and class, and fresh, those of them that are not
-- takeovers. Lapsed claims go first, whatever their priority, then jobs by priority, due time, id. Counts to 1,000 and then says
-- that there are more. Takes no lock.
-- grants: none
create or replace function sluicegate.job_position(p_job sluicegate.job, p_now timestamptz, out ahead bigint, out fresh bigint, out exact boolean)
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_lapsed bigint;
begin
    select count(*) into v_lapsed
    from (
        select from sluicegate.job j
        where j.queue_id = p_job.queue_id and j.state = 'claimed' and j.lease_expires_at <= p_now
            and j.attempt < j.max_attempts and j.cancel_requested_at is null
            and (p_job.state <> 'claimed' or (j.lease_expires_at, j.id) < (p_job.lease_expires_at, p_job.id))
        limit 1001
    ) l;
    fresh := 0;
    if p_job.state <> 'claimed' then
        select count(*) into fresh
        from (
            (select from sluicegate.job j
            where j.queue_id = p_job.queue_id and j.class = p_job.class and j.state = 'pending'
                and (j.priority, j.run_at, j.id) < (p_job.priority, p_job.run_at, p_job.id)
            limit 1001)
            union all
            (select from sluicegate.due_heads(p_job.queue_id, p_job.class, p_now, 1001) d
            where (d.priority, d.run_at, d.id) < (p_job.priority, p_job.run_at, p_job.id))
            limit 1001
        ) a;
    end if;
    exact := v_lapsed + fresh <= 1000;
    ahead := least(v_lapsed + fresh, 1000);
    fresh := least(fresh, 1000);
end
$$;

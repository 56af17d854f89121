-- The admission status of those of some jobs that wait: state, reason, next_eligible_at and exact, as its queue's verdict says. The rule is
-- asked once a queue, however many of its jobs wait. Takes no lock.
-- grants: none
create or replace function sluicegate.job_admissions(p_ids bigint[], p_now timestamptz) returns table (id bigint, admission jsonb)
language plpgsql stable
set search_path = sluicegate, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    with waiting as materialized (
        select w.id, w.queue_id from sluicegate.waiting_jobs(p_ids, p_now) w
    ), told as materialized (
        select v.queue_id, sluicegate.admission_status_of(v.verdict) as admission
        from sluicegate.verdicts(array(select distinct w.queue_id from waiting w)) v
    )
    select w.id, t.admission from waiting w join told t on t.queue_id = w.queue_id;
end
$$;

-- Which of some jobs wait to be admitted: pending or due, or lapsed claims that may be taken over. Takes no lock.
-- grants: none
create or replace function sluicegate.waiting_jobs(p_ids bigint[], p_now timestamptz) returns table (id bigint, queue_id bigint)
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    select j.id, j.queue_id
    from unnest(p_ids) as i(id)
    cross join lateral (select * from sluicegate.job k where k.id = i.id offset 0) j
    where j.state = 'pending' or (j.state = 'scheduled' and j.run_at <= p_now)
        or (j.state = 'claimed' and j.lease_expires_at <= p_now and j.attempt < j.max_attempts and j.cancel_requested_at is null);
end
$$;

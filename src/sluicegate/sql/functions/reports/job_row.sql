-- A job as lists show it: everything but payload and result. One place for its fields. payload_size is what the payload takes as it is
-- stored, compressed if it is large: it is not read for it, as a row passed from query to query would be.
-- grants: none
create or replace function sluicegate.job_row(p_job_id bigint) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return (
        select jsonb_build_object(
            'id', j.id, 'queue', (select q.name from sluicegate.queue q where q.id = j.queue_id), 'state', j.state, 'class', j.class,
            'priority', j.priority, 'run_at', j.run_at, 'kind', j.kind, 'title', j.title, 'tags', to_jsonb(j.tags),
            'parent_id', j.parent_id, 'dedup_key', j.dedup_key, 'attempt', j.attempt, 'max_attempts', j.max_attempts,
            'attempts_total', j.attempts_total, 'worker', j.worker, 'lease_expires_at', j.lease_expires_at,
            'dead_letter', j.state = 'failed', 'cancel_requested', j.cancel_requested_at is not null, 'note', j.note,
            'payload_size', pg_column_size(j.payload), 'created_at', j.created_at, 'claimed_at', j.claimed_at,
            'finished_at', j.finished_at, 'error', j.error)
        from sluicegate.job j where j.id = p_job_id
    );
end
$$;

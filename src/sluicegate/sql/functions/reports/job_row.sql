-- A job as lists show it: everything but payload and result. One place for its fields.
-- grants: none
create or replace function sluicegate.job_row(p_job sluicegate.job, p_queue text) returns jsonb
language sql stable
set search_path = sluicegate, pg_temp
as $$
select jsonb_build_object(
    'id', p_job.id, 'queue', p_queue, 'state', p_job.state, 'class', p_job.class, 'priority', p_job.priority,
    'run_at', p_job.run_at, 'kind', p_job.kind, 'title', p_job.title, 'tags', to_jsonb(p_job.tags),
    'parent_id', p_job.parent_id, 'dedup_key', p_job.dedup_key, 'attempt', p_job.attempt,
    'max_attempts', p_job.max_attempts, 'attempts_total', p_job.attempts_total, 'worker', p_job.worker,
    'lease_expires_at', p_job.lease_expires_at, 'dead_letter', p_job.state = 'failed',
    'cancel_requested', p_job.cancel_requested_at is not null, 'note', p_job.note,
    'payload_size', octet_length(p_job.payload::text), 'created_at', p_job.created_at, 'claimed_at', p_job.claimed_at,
    'finished_at', p_job.finished_at, 'error', p_job.error)
$$;

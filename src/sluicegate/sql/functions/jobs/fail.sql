-- Ends an attempt as failed: the job is scheduled again after its backoff, or at the attempt cap, or with
-- p_retry false, becomes a dead letter. Idempotent by its lease token; waits for the job's row, each time for at most 10 s. Raises SG001, SG002.
-- grants: worker
create or replace function sluicegate.fail(
    p_job_id bigint, p_lease_token text, p_error text, p_retry_in_seconds double precision default null,
    p_retry boolean default true, p_summary text default null, p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set lock_timeout = '10s'
as $$
begin
    perform sluicegate.wait_briefly();
    return ((sluicegate.finish_jobs(jsonb_build_array(jsonb_build_object(
        'job_id', p_job_id, 'lease_token', p_lease_token, 'outcome', 'failed', 'error', p_error,
        'retry_in_seconds', p_retry_in_seconds::numeric, 'retry', p_retry, 'summary', p_summary, 'scope', p_scope
    )))).answer -> 0)::jsonb;
end
$$;

-- Ends a job as done, with its result. Idempotent by its lease token; waits for the job's row, each time for at most 10 s. Raises SG001, SG002.
-- grants: worker
create or replace function sluicegate.complete(
    p_job_id bigint, p_lease_token text, p_result jsonb default null, p_summary text default null,
    p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set lock_timeout = '10s'
as $$
begin
    perform sluicegate.wait_briefly();
    return ((sluicegate.finish_jobs(jsonb_build_array(jsonb_build_object(
        'job_id', p_job_id, 'lease_token', p_lease_token, 'outcome', 'completed', 'result', p_result, 'summary', p_summary,
        'scope', p_scope
    )))).answer -> 0)::jsonb;
end
$$;

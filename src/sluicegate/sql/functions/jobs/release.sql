-- Gives a job back: pending, or scheduled for p_not_before, at the attempt cap too. The attempt stays spent unless p_started is
-- false and the claim raised the counter. Idempotent by its lease token; waits for the job's row, each time for at most 10 s. Raises SG001, SG002.
-- grants: worker
create or replace function sluicegate.release(
    p_job_id bigint, p_lease_token text, p_reason text default null, p_not_before timestamptz default null,
    p_started boolean default true, p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set lock_timeout = '10s'
as $$
begin
    perform sluicegate.wait_briefly();
    return ((sluicegate.finish_jobs(jsonb_build_array(jsonb_build_object(
        'job_id', p_job_id, 'lease_token', p_lease_token, 'outcome', 'released', 'reason', p_reason,
        'not_before', p_not_before, 'started', p_started, 'scope', p_scope
    )))).answer -> 0)::jsonb;
end
$$;

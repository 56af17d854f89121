-- The one answer for a job that does not exist or belongs to another scope: byte-identical for both.
-- grants: none
create or replace function sluicegate.job_not_found(p_job_id bigint) returns jsonb
language sql immutable
set search_path = sluicegate, pg_temp
as $$
select jsonb_build_object('job_id', p_job_id, 'status', 'not_found', 'message', format(
    'There is no job %s in this scope. Check the id and the scope; finished jobs are kept for 30 days.', p_job_id))
$$;

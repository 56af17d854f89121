-- Extends a lease by its own length or p_lease_seconds; never shortens it unless asked. Says whether the job was
-- cancelled meanwhile. Waits for the job's row. Raises SG001, SG002.
-- grants: worker
create or replace function sluicegate.heartbeat(
    p_job_id bigint, p_lease_token text, p_lease_seconds integer default null, p_shorten boolean default false,
    p_note text default null, p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
as $$
declare
    v_answer jsonb := sluicegate.heartbeat_many(jsonb_build_array(jsonb_build_object(
        'job_id', p_job_id, 'lease_token', p_lease_token, 'lease_seconds', p_lease_seconds, 'shorten', p_shorten, 'note', p_note
    )), p_scope);
begin
    return v_answer -> 'heartbeats' -> 0 || jsonb_build_object('server_time', v_answer -> 'server_time');
end
$$;

-- Extends a lease by its own length or p_lease_seconds; never shortens it unless asked. Says whether the job was
-- cancelled meanwhile. Waits for the job's row. Raises SG001, SG002.
-- grants: worker
create or replace function sluicegate.heartbeat(
    p_job_id bigint, p_lease_token text, p_lease_seconds integer default null, p_shorten boolean default false,
    p_note text default null, p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '10s'
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_answer jsonb;
begin
    perform sluicegate.wait_briefly();
    perform 1 from sluicegate.job j where j.id = p_job_id and j.scope_id = v_scope_id for no key update;
    v_answer := sluicegate.heartbeat_many(jsonb_build_array(jsonb_build_object(
        'job_id', p_job_id, 'lease_token', p_lease_token, 'lease_seconds', p_lease_seconds, 'shorten', p_shorten, 'note', p_note
    )), p_scope);
    return v_answer -> 'heartbeats' -> 0 || jsonb_build_object('server_time', v_answer -> 'server_time');
end
$$;

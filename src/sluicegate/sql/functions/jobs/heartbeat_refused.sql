-- Answers a heartbeat whose token does not hold the job: a conflict, which is recorded, or not_found.
-- grants: none
create or replace function sluicegate.heartbeat_refused(p_job_id bigint, p_scope_id bigint, p_token_hash bytea) returns jsonb
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
declare
    v_state text;
begin
    select j.state into v_state from sluicegate.job j where j.id = p_job_id and j.scope_id = p_scope_id;
    if not found then
        return sluicegate.job_not_found(p_job_id);
    end if;
    perform sluicegate.record_late_call(p_job_id, p_token_hash, 'heartbeat');
    return jsonb_build_object('job_id', p_job_id, 'status', 'conflict', 'lease_expires_at', null,
        'cancelled', v_state = 'cancelled', 'message', format(
            'Job %s is %s and this lease token does not hold it. Stop working on it.', p_job_id, v_state));
end
$$;

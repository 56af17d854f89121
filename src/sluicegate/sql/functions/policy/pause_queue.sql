-- Pauses a queue, until p_until or until resumed; its limits keep their numbers. Locks the queue's lanes in order; exact at once.
-- Raises SG001, SG002, SG003, SG005.
-- grants: admin
create or replace function sluicegate.pause_queue(
    p_queue text, p_reason text default null, p_until timestamptz default null, p_scope text default 'endpoint:default',
    p_actor text default null
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set lock_timeout = '10s'
as $$
declare
    v_queue_id bigint := sluicegate.policy_queue(p_scope, p_queue, p_actor, 'set_admission_policy', true, p_reason);
    v_fields jsonb;
begin
    if not isfinite(p_until) then
        perform sluicegate.refuse('SG001', 'paused_until', 'The end of a pause lies in the future.',
            'Leave it out to pause until resumed.');
    end if;
    perform sluicegate.lock_policy(v_queue_id, true);
    v_fields := coalesce(sluicegate.policy_kept(v_queue_id), '{"limits": []}')
        || jsonb_build_object('paused', true, 'paused_reason', p_reason, 'paused_until', p_until);
    return sluicegate.write_policy(v_queue_id, sluicegate.policy_fields(v_fields, v_fields -> 'limits'), 'pause', p_reason, null, p_actor);
end
$$;

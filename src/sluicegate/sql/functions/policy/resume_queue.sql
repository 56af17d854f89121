-- Ends a pause; what is over budget stays so. A policy that only paused goes with it. Locks the queue's lanes in order.
-- Raises SG002, SG003 (not paused), SG005.
-- grants: admin
create or replace function sluicegate.resume_queue(
    p_queue text, p_reason text default null, p_scope text default 'endpoint:default', p_actor text default null
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set lock_timeout = '10s'
as $$
declare
    v_queue_id bigint := sluicegate.policy_queue(p_scope, p_queue, p_actor, 'set_admission_policy', false, p_reason);
    v_fields jsonb;
begin
    perform sluicegate.lock_policy(v_queue_id, true);
    v_fields := sluicegate.policy_kept(v_queue_id);
    if not coalesce((v_fields ->> 'paused')::boolean, false) then
        perform sluicegate.refuse('SG003', 'paused', format('Queue %s is not paused.', p_queue), 'There is nothing to resume.');
    end if;
    v_fields := v_fields || '{"paused": false, "paused_reason": null, "paused_until": null}';
    if v_fields ->> 'max_in_flight' is null and v_fields -> 'limits' = '[]' then
        return sluicegate.write_policy(v_queue_id, null, 'resume', p_reason, null, p_actor);
    end if;
    return sluicegate.write_policy(v_queue_id, sluicegate.policy_fields(v_fields, v_fields -> 'limits'), 'resume', p_reason, null, p_actor);
end
$$;

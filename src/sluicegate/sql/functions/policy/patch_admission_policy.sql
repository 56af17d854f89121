-- Changes only the fields that p_patch names, null clearing one; limits are replaced as a whole. Otherwise set_admission_policy.
-- Locks the queue's lanes in order. Raises SG001 naming the field, SG002, SG003, SG005.
-- grants: admin
create or replace function sluicegate.patch_admission_policy(
    p_queue text, p_patch jsonb, p_reason text default null, p_revision bigint default null,
    p_scope text default 'endpoint:default', p_actor text default null
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set lock_timeout = '10s'
as $$
declare
    v_queue_id bigint := sluicegate.policy_queue(p_scope, p_queue, p_actor, 'set_admission_policy', true, p_reason);
    v_limits jsonb;
    v_kept jsonb;
begin
    if jsonb_typeof(p_patch) is distinct from 'object' then
        perform sluicegate.refuse('SG001', 'policy', 'A policy is a JSON object.', 'Send {"max_in_flight": 4}.');
    end if;
    v_limits := sluicegate.window_limits(p_patch, sluicegate.owner_zone(sluicegate.scope_id(p_scope)));
    perform sluicegate.lock_policy(v_queue_id,
        not p_patch ? 'limits' or not exists (select from sluicegate.policy p where p.queue_id = v_queue_id));
    v_kept := coalesce(sluicegate.policy_kept(v_queue_id), '{"limits": []}');
    if not p_patch ?| '{limits,max_claims_per_window,window}' then
        v_limits := v_kept -> 'limits';
    end if;
    -- What belongs to a pause goes with it, whether this ends it or it is over.
    if p_patch -> 'paused' in ('false', 'null') or (v_kept ->> 'paused_until')::timestamptz <= sluicegate.clock() then
        v_kept := v_kept || '{"paused": false, "paused_reason": null, "paused_until": null}';
    end if;
    return sluicegate.write_policy(v_queue_id, sluicegate.policy_fields((v_kept - 'limits') || p_patch, v_limits), 'set', p_reason,
        p_revision, p_actor);
end
$$;

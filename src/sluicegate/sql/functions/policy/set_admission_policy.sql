-- Sets the whole policy of a queue, which the first one creates. p_policy: {max_in_flight, in_flight_mode, limits: [{max_claims_per_window,
-- window: {period, tz, start, weekday, day}, mode}], paused, paused_reason, paused_until, lanes}, or the single form {max_in_flight,
-- max_claims_per_window, window}. p_revision guards against two editors; p_actor is the endpoint that asks, whose grant is checked.
-- Locks the queue's lanes in order. Effective at the next claim; audited. Raises SG001 naming the field, SG002, SG003, SG005.
-- grants: admin
create or replace function sluicegate.set_admission_policy(
    p_queue text, p_policy jsonb, p_reason text default null, p_revision bigint default null,
    p_scope text default 'endpoint:default', p_actor text default null
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set lock_timeout = '10s'
as $$
declare
    v_queue_id bigint;
    v_limits jsonb;
    v_kept jsonb;
    v_fields jsonb;
begin
    v_queue_id := sluicegate.policy_queue(p_scope, p_queue, p_actor, 'set_admission_policy', true, p_reason);
    v_limits := sluicegate.window_limits(p_policy, sluicegate.owner_zone(sluicegate.scope_id(p_scope)));
    if jsonb_typeof(p_policy) is distinct from 'object' or p_policy ? 'paused' then
        v_fields := sluicegate.policy_fields(p_policy, v_limits);
        perform sluicegate.lock_policy(v_queue_id);
    else
        perform sluicegate.lock_policy(v_queue_id);
        -- Somebody's pause ends when he resumes, or when a policy says so, not because its numbers change.
        v_kept := sluicegate.policy_kept(v_queue_id);
        v_fields := sluicegate.policy_fields(case
            when (v_kept -> 'paused')::boolean and coalesce((v_kept ->> 'paused_until')::timestamptz > sluicegate.clock(), true)
                then jsonb_build_object('paused', true, 'paused_reason', v_kept -> 'paused_reason', 'paused_until', v_kept -> 'paused_until')
            else '{}'
        end || p_policy, v_limits);
    end if;
    return sluicegate.write_policy(v_queue_id, v_fields, 'set', p_reason, p_revision, p_actor);
end
$$;

-- Takes a queue's policy away. What was charged stays on record, so a policy set again counts it. Locks the queue's lanes in order.
-- Raises SG001, SG002, SG003, SG005.
-- grants: admin
create or replace function sluicegate.clear_admission_policy(
    p_queue text, p_reason text default null, p_revision bigint default null, p_scope text default 'endpoint:default',
    p_actor text default null
) returns jsonb
language sql security definer
set search_path = sluicegate, pg_temp
set lock_timeout = '10s'
as $$
select sluicegate.write_policy(
    sluicegate.policy_queue(p_scope, p_queue, p_actor, 'clear_admission_policy', false, p_reason), null, 'clear', p_reason, p_revision,
    p_actor)
$$;

-- One audit row: who changed what of a queue's policy, when, from what to what, and why. Raises SG001.
-- grants: none
create or replace function sluicegate.audit_policy(
    p_queue_id bigint, p_verb text, p_before jsonb, p_after jsonb, p_reason text, p_actor text
) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
begin
    if octet_length(p_reason) > 1024 then
        perform sluicegate.refuse('SG001', 'reason', 'The reason is over 1,024 bytes long.', 'Shorten it.');
    end if;
    insert into sluicegate.policy_audit (queue_id, scope_id, at, verb, owner_id, endpoint_id, database_user, before, after, reason)
    select q.id, q.scope_id, sluicegate.clock(), p_verb, coalesce(e.owner_id, o.owner_id, q.team_id), e.id, session_user,
        p_before, p_after, p_reason
    from sluicegate.queue q
    left join sluicegate.endpoint e on p_actor is not null and e.id = sluicegate.scope_id(p_actor)
    left join sluicegate.endpoint o on o.id = q.endpoint_id
    where q.id = p_queue_id;
end
$$;

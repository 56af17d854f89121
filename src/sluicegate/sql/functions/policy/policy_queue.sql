-- The queue whose policy is to be changed, made when missing if p_create. An acting endpoint needs the verb granted, whatever it names, and
-- reaches its own queues only: a scope or queue of others is not found, in the words of what does not exist. Raises SG001,
-- SG002, SG005.
-- grants: none
create or replace function sluicegate.policy_queue(p_scope text, p_queue text, p_actor text, p_verb text, p_create boolean, p_reason text)
returns bigint
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_scope_id bigint;
    v_actor_id bigint;
    v_queue_id bigint;
begin
    if p_actor is null then
        v_scope_id := sluicegate.scope_id(p_scope);
    else
        v_actor_id := sluicegate.scope_id(p_actor);
        if not exists (select from sluicegate.endpoint_grant g where g.endpoint_id = v_actor_id and g.verb = p_verb) then
            perform sluicegate.refuse('SG005', 'verb', format('%s is not granted to %s.', p_verb, p_actor),
                'Its owner can grant it; it lets the agent change its own budget.');
        end if;
        begin
            v_scope_id := case when sluicegate.scope_id(p_scope) = v_actor_id then v_actor_id end;
        exception
            when sqlstate 'SG002' then
                v_scope_id := null;
        end;
    end if;
    perform sluicegate.check_queue_name(p_queue);
    if octet_length(p_reason) > 1024 then
        perform sluicegate.refuse('SG001', 'reason', 'The reason is over 1,024 bytes long.', 'Shorten it.');
    end if;
    select q.id into v_queue_id from sluicegate.queue q where q.scope_id = v_scope_id and q.name = p_queue;
    if v_scope_id is null or (v_queue_id is null and not p_create) or (p_actor is not null and not exists (
        select from sluicegate.endpoint_grant g
        where g.endpoint_id = v_actor_id and g.verb = p_verb and (g.queue_id is null or g.queue_id = v_queue_id)
    )) then
        perform sluicegate.refuse('SG002', 'queue', format('There is no queue %L in this scope.', p_queue), 'Check its name and scope.');
    end if;
    return coalesce(v_queue_id, sluicegate.queue_id(v_scope_id, p_queue));
end
$$;

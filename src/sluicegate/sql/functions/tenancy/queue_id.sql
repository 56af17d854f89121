-- The id of a queue by name, made when missing: the first enqueue or policy creates its queue.
-- Waits only for another transaction that is creating the very same queue. Raises SG001 for a bad name.
-- grants: none
create or replace function sluicegate.queue_id(p_scope_id bigint, p_name text, p_field text default 'queue') returns bigint
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_id bigint;
begin
    select q.id into v_id from sluicegate.queue q where q.scope_id = p_scope_id and q.name = p_name;
    if found then
        return v_id;
    end if;
    perform sluicegate.check_queue_name(p_name, p_field);
    insert into sluicegate.queue (endpoint_id, team_id, name)
    values (
        (select e.id from sluicegate.endpoint e where e.id = p_scope_id),
        (select o.id from sluicegate.owner o where o.id = p_scope_id),
        p_name
    )
    on conflict (scope_id, name) do nothing
    returning id into v_id;
    if v_id is null then
        select q.id into v_id from sluicegate.queue q where q.scope_id = p_scope_id and q.name = p_name;
    end if;
    return v_id;
end
$$;

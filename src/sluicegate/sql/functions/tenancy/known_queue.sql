-- The id of a scope's queue by its name. Takes no lock. Raises SG002.
-- grants: none
create or replace function sluicegate.known_queue(p_scope_id bigint, p_queue text) returns bigint
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
declare
    v_queue_id bigint;
begin
    select q.id into v_queue_id from sluicegate.queue q where q.scope_id = p_scope_id and q.name = p_queue;
    if not found then
        perform sluicegate.refuse('SG002', 'queue', format('There is no queue %L in this scope.', left(p_queue, 140)),
            'The first enqueue or policy creates a queue.');
    end if;
    return v_queue_id;
end
$$;

-- Policy, use and verdict of every governed queue of a scope, or of one queue; takes no lock. Raises SG001, SG002.
-- grants: worker, reader
create or replace function sluicegate.admission_status(p_queue text default null, p_scope text default 'endpoint:default') returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_now timestamptz := sluicegate.clock();
begin
    if p_queue is not null and not exists (
        select from sluicegate.queue q where q.scope_id = v_scope_id and q.name = p_queue
    ) then
        perform sluicegate.refuse('SG002', 'queue', format('There is no queue %L in this scope.', left(p_queue, 140)),
            'The first enqueue or policy creates a queue.');
    end if;
    return jsonb_build_object('server_time', v_now, 'queues', (
        select coalesce(jsonb_agg(
            coalesce(sluicegate.policy_status(q.id), jsonb_build_object('queue', q.name, 'status',
                case when q.governed then 'admission_unavailable' else 'ungoverned' end))
            || jsonb_build_object('pending', c.pending, 'pending_exact', c.exact) order by q.name), '[]')
        from sluicegate.queue q cross join lateral sluicegate.pending_count(q.id, v_now) c
        where q.scope_id = v_scope_id and (q.name = p_queue or (p_queue is null and q.governed))));
end
$$;

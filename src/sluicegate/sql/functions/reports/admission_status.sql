-- Policy, use and verdict of every governed queue of a scope, or of one queue; takes no lock. Raises SG001, SG002.
-- grants: worker, reader
create or replace function sluicegate.admission_status(p_queue text default null, p_scope text default 'endpoint:default') returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_now timestamptz := sluicegate.clock();
    v_queue record;
    v_status jsonb;
    v_locked jsonb;
    v_queues jsonb := '[]';
begin
    if p_queue is not null then
        perform sluicegate.known_queue(v_scope_id, p_queue);
    end if;
    for v_queue in
        select q.id, q.name, c.pending, c.exact
        from sluicegate.queue q cross join lateral sluicegate.pending_count(q.id, v_now) c
        where q.scope_id = v_scope_id and (q.name = p_queue or (p_queue is null and q.governed))
        order by q.name
    loop
        v_status := coalesce(sluicegate.policy_status(v_queue.id, v_locked),
            jsonb_build_object('queue', v_queue.name, 'status', 'ungoverned'));
        if v_status -> 'verdict' ->> 'fault_code' = '55P03' then
            v_locked := v_status -> 'verdict' || '{"gates": []}';
        end if;
        v_queues := v_queues
            || jsonb_build_array(v_status || jsonb_build_object('pending', v_queue.pending, 'pending_exact', v_queue.exact));
    end loop;
    return jsonb_build_object('server_time', v_now, 'queues', v_queues);
end
$$;

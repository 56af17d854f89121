-- How many jobs each queue of a scope has in each state, and since when its oldest ready one has been so; see queue_counts. Each figure
-- counts to 1,000, so that asking is never a matter of the backlog. Takes no lock. Raises SG001, SG002.
-- grants: worker, reader
create or replace function sluicegate.queue_stats(p_scope text default 'endpoint:default') returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_now timestamptz := sluicegate.clock();
    v_most integer := 1000;
begin
    return jsonb_build_object('server_time', v_now, 'counted_to', v_most, 'queues', (
        select coalesce(jsonb_agg(jsonb_build_object('queue', q.name, 'oldest_pending_at', sluicegate.oldest_pending(q.id, v_now))
            || sluicegate.queue_counts(q.id, v_now, v_most) order by q.name), '[]')
        from sluicegate.queue q
        where q.scope_id = v_scope_id
    ));
end
$$;

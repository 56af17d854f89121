-- Tells the workers of some queues to look for jobs now. For callers that left it to later with p_wake false; enqueue does it by itself.
-- A name that no queue has is nobody's. Raises SG002.
-- grants: worker, producer
create or replace function sluicegate.wake(p_queues text[], p_scope text default 'endpoint:default') returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_ids bigint[];
begin
    select array_agg(q.id) into v_ids
    from (select distinct n from unnest(p_queues) n) x
    cross join lateral (select k.id from sluicegate.queue k where k.scope_id = v_scope_id and k.name = x.n offset 0) q;
    perform sluicegate.wake_workers(v_ids);
    return jsonb_build_object('queues', coalesce(cardinality(v_ids), 0));
end
$$;

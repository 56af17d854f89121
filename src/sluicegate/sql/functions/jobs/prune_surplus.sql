-- Deletes up to p_limit finished jobs beyond the newest p_keep of each scope, the oldest first, per scope so that a noisy tenant cannot push
-- out another's history. Reads index entries: p_keep + p_limit of a scope at most to count them, p_limit a queue to choose.
-- Locks with SKIP LOCKED.
-- grants: none
create or replace function sluicegate.prune_surplus(p_keep bigint, p_limit integer) returns bigint
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_scope record;
    v_over bigint;
    v_rows bigint;
    v_gone bigint := 0;
begin
    for v_scope in select array_agg(q.id) as queues from sluicegate.queue q group by q.scope_id loop
        exit when v_gone >= p_limit;
        select count(*) - p_keep into v_over
        from (
            select from unnest(v_scope.queues) q
            cross join lateral (
                select from sluicegate.job j where j.queue_id = q and j.state in ('done', 'failed', 'cancelled')
            ) e
            limit least(p_keep, 9000000000000000000) + p_limit - v_gone
        ) n;
        continue when v_over <= 0;
        with surplus as materialized (
            select h.id
            from unnest(v_scope.queues) q
            cross join lateral (
                select j.finished_at, j.id
                from sluicegate.job j
                where j.queue_id = q and j.state in ('done', 'failed', 'cancelled')
                order by j.finished_at, j.id
                limit v_over
            ) h
            order by h.finished_at, h.id
            limit v_over
        ), free as (
            select j.id
            from sluicegate.job j
            -- Joined with '', so that no partial index seems to fit: it would be read whole.
            where j.id = any (array(select s.id from surplus s)) and j.state || '' in ('done', 'failed', 'cancelled')
            for update skip locked
        )
        delete from sluicegate.job j using free where j.id = free.id;
        get diagnostics v_rows = row_count;
        v_gone := v_gone + v_rows;
    end loop;
    return v_gone;
end
$$;

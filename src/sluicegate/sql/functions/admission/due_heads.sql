-- The first p_limit due jobs among a queue's scheduled ones of a class, in the order of priority, due time, id, unlocked.
-- A loose scan: one probe a priority, however many future jobs stand at it, until enough are found.
-- grants: none
create or replace function sluicegate.due_heads(p_queue_id bigint, p_class text, p_now timestamptz, p_limit integer)
returns table (priority smallint, run_at timestamptz, id bigint)
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_head record;
    v_priority integer := -32769;
    v_found bigint := 0;
    v_rows bigint;
begin
    loop
        select j.priority, j.run_at into v_head
        from sluicegate.job j
        where j.queue_id = p_queue_id and j.class = p_class and j.state = 'scheduled' and j.priority > v_priority
        order by j.priority, j.run_at, j.id
        limit 1;
        exit when not found;
        v_priority := v_head.priority;
        continue when v_head.run_at > p_now;
        return query
        select j.priority, j.run_at, j.id
        from sluicegate.job j
        where j.queue_id = p_queue_id and j.class = p_class and j.state = 'scheduled'
            and j.priority = v_priority and j.run_at <= p_now
        order by j.run_at, j.id
        limit p_limit - v_found;
        get diagnostics v_rows = row_count;
        v_found := v_found + v_rows;
        exit when v_found >= p_limit;
    end loop;
end
$$;

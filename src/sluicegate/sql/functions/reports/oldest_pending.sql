-- When the job of a queue that has been ready longest became so: pending, or scheduled and due. Null when none is. A loose scan of both
-- indexes, one probe a priority, because each of them is ordered by time only within a priority.
-- grants: none
create or replace function sluicegate.oldest_pending(p_queue_id bigint, p_now timestamptz) returns timestamptz
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_class text;
    v_head record;
    v_priority integer;
    v_oldest timestamptz;
begin
    foreach v_class in array '{alert,p1,mid,low}'::text[] loop
        v_priority := -32769;
        loop
            select j.priority, j.run_at into v_head
            from sluicegate.job j
            where j.queue_id = p_queue_id and j.class = v_class and j.state = 'pending' and j.priority > v_priority
            order by j.priority, j.run_at, j.id
            limit 1;
            exit when not found;
            v_priority := v_head.priority;
            v_oldest := least(v_oldest, v_head.run_at);
        end loop;
        v_priority := -32769;
        loop
            select j.priority, j.run_at into v_head
            from sluicegate.job j
            where j.queue_id = p_queue_id and j.class = v_class and j.state = 'scheduled' and j.priority > v_priority
            order by j.priority, j.run_at, j.id
            limit 1;
            exit when not found;
            v_priority := v_head.priority;
            v_oldest := least(v_oldest, case when v_head.run_at <= p_now then v_head.run_at end);
        end loop;
    end loop;
    return v_oldest;
end
$$;

-- Up to p_n due jobs in the order of priority, due time, id over all queues and classes asked, locked with SKIP LOCKED.
-- One stream (queue, class) without a due scheduled job is one ordered index scan; otherwise the heads of the streams are
-- merged (ready_merged). Starts at the hints of ready_from; what they hide is looked for when too little was found. A look
-- from the beginning that came by far more entries than it took leaves a hint (ready_looked).
-- grants: none
create or replace function sluicegate.ready(p_queues bigint[], p_classes text[], p_n integer, p_now timestamptz)
returns bigint[]
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_ids bigint[];
    v_from record;
    v_one boolean := cardinality(p_queues) = 1 and cardinality(p_classes) = 1
        and not exists (select from sluicegate.due_heads(p_queues[1], p_classes[1], p_now, 1));
    v_hints boolean := exists (
        select from sluicegate.ready_cursor c
        where c.queue_id = any (p_queues) and c.class = any (p_classes)
            and c.looked_at between clock_timestamp() - interval '1 second' and clock_timestamp()
    );
    v_entries bigint := pg_stat_get_xact_tuples_returned('sluicegate.job_ready'::regclass);
begin
    loop
        if v_one then
            v_from := sluicegate.ready_from(p_queues[1], p_classes[1], v_hints);
            select coalesce(array_agg(p.id), '{}') into v_ids
            from (
                select j.id
                from sluicegate.job j
                where j.queue_id = p_queues[1] and j.class = p_classes[1] and j.state = 'pending'
                    and (j.priority, j.run_at, j.id) >= (v_from.priority, v_from.run_at, v_from.id)
                order by j.priority, j.run_at, j.id
                limit p_n
                for no key update skip locked
            ) p;
        else
            v_ids := sluicegate.ready_merged(p_queues, p_classes, p_n, p_now, v_hints);
        end if;
        exit when cardinality(v_ids) >= p_n or not v_hints;
        v_hints := false;
    end loop;
    if not v_hints and pg_stat_get_xact_tuples_returned('sluicegate.job_ready'::regclass) - v_entries > 1000 + 10 * p_n then
        perform sluicegate.ready_looked(q, c) from unnest(p_queues) q, unnest(p_classes) c;
    end if;
    return v_ids;
end
$$;

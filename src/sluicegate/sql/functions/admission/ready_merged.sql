-- The first p_n jobs over several streams: heads of each read unlocked, merged, and locked by id with SKIP LOCKED;
-- a wider look follows while peers hold too many of them.
-- grants: none
create or replace function sluicegate.ready_merged(
    p_queues bigint[], p_classes text[], p_n integer, p_now timestamptz, p_hints boolean
) returns bigint[]
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_ids bigint[] := '{}';
    v_more bigint[];
    v_heads bigint[];
    v_width integer := p_n + 10;
begin
    loop
        select array_agg(h.id) into v_heads
        from (
            select s.priority, s.run_at, s.id
            from unnest(p_queues) q cross join unnest(p_classes) c
            cross join lateral sluicegate.ready_from(q, c, p_hints) f
            cross join lateral (
                (
                    select j.priority, j.run_at, j.id
                    from sluicegate.job j
                    where j.queue_id = q and j.class = c and j.state = 'pending'
                        and (j.priority, j.run_at, j.id) >= (f.priority, f.run_at, f.id)
                    order by j.priority, j.run_at, j.id
                    limit v_width
                )
                union all
                select d.priority, d.run_at, d.id from sluicegate.due_heads(q, c, p_now, v_width) d
            ) s
            order by s.priority, s.run_at, s.id
            limit v_width
        ) h;
        select coalesce(array_agg(p.id), '{}') into v_more
        from (
            select j.id
            from sluicegate.job j
            -- Joined with '', so that no partial index seems to fit: it would be read whole.
            where j.id = any (v_heads) and j.id <> all (v_ids)
                and (j.state || '' = 'pending' or j.state || '' = 'scheduled' and j.run_at <= p_now)
            order by j.priority, j.run_at, j.id
            limit p_n - cardinality(v_ids)
            for no key update skip locked
        ) p;
        v_ids := v_ids || v_more;
        exit when cardinality(v_ids) >= p_n or coalesce(cardinality(v_heads), 0) < v_width or v_width > 20000;
        v_width := v_width * 2 + 30;
    end loop;
    return v_ids;
end
$$;

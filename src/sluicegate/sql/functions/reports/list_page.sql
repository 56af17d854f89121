-- The ids of a page of some queues' jobs, newest first, and the id below which to go on, null at the end. It looks at the newest 1,000
-- jobs of the database; then, through the indexes of the queues, at their failed or cancelled jobs if those are asked for, or at all
-- they hold, up to 5,000; else at the newest 20,000, and then the page may be short, or empty, with more to come.
-- grants: none
create or replace function sluicegate.list_page(
    p_queues bigint[], p_state text, p_kind text, p_limit integer, p_before_id bigint, out ids bigint[], out next_before_id bigint
)
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_before bigint := coalesce(p_before_id, 9223372036854775807);
    v_look integer;
    v_few integer := 5000;
    v_found bigint[];
begin
    if p_queues = '{}' then
        ids := '{}';
        return;
    end if;
    foreach v_look in array '{1000,20000}'::integer[] loop
        ids := array(
            select n.id
            from (
                select j.id, j.queue_id, j.state, j.kind from sluicegate.job j where j.id < v_before order by j.id desc limit v_look
            ) n
            where n.queue_id = any (p_queues) and n.state = coalesce(p_state, n.state) and n.kind = coalesce(p_kind, n.kind)
            order by n.id desc
            limit p_limit
        );
        next_before_id := case
            when cardinality(ids) = p_limit then ids[p_limit]
            else (select j.id from sluicegate.job j where j.id < v_before order by j.id desc offset v_look - 1 limit 1)
        end;
        exit when v_look > 1000 or cardinality(ids) = p_limit or next_before_id is null;

        if p_state in ('failed', 'cancelled') then
            v_few := case when p_kind is null then p_limit else greatest(p_limit, v_few / cardinality(p_queues)) end;
            -- Of a queue that has more of them, those above the last one looked at are known.
            select array_agg(f.id), max(f.id) filter (where f.ord = v_few) into v_found, next_before_id
            from (
                select e.id, row_number() over (partition by q order by e.id desc) as ord
                from unnest(p_queues) q
                cross join lateral (
                    (
                        select j.id from sluicegate.job j
                        where p_state = 'failed' and j.queue_id = q and j.state = 'failed' and j.id < v_before
                        order by j.id desc limit v_few
                    )
                    union all
                    (
                        select j.id from sluicegate.job j
                        where p_state = 'cancelled' and j.queue_id = q and j.state = 'cancelled' and j.id < v_before
                        order by j.id desc limit v_few
                    )
                ) e
            ) f;
        else
            v_found := array(
                select h.id
                from unnest(p_queues) q
                cross join lateral (
                    select j.id from sluicegate.job j
                    where coalesce(p_state, 'pending') = 'pending' and j.queue_id = q and j.state = 'pending'
                    union all
                    select j.id from sluicegate.job j
                    where coalesce(p_state, 'scheduled') = 'scheduled' and j.queue_id = q and j.state = 'scheduled'
                    union all
                    select j.id from sluicegate.job j
                    where coalesce(p_state, 'claimed') = 'claimed' and j.queue_id = q and j.state = 'claimed'
                    union all
                    select j.id from sluicegate.job j
                    where coalesce(p_state, 'done') = 'done' and j.queue_id = q and j.state in ('done', 'failed', 'cancelled')
                ) h
                limit v_few + 1
            );
            continue when cardinality(v_found) > v_few;
            next_before_id := null;
        end if;
        ids := array(
            select j.id
            from (
                select f.id from unnest(v_found) as f(id) where f.id < v_before and f.id >= coalesce(next_before_id, 0) order by f.id desc
            ) i
            cross join lateral (select * from sluicegate.job j where j.id = i.id offset 0) j
            where j.state = coalesce(p_state, j.state) and j.kind = coalesce(p_kind, j.kind)
            limit p_limit
        );
        next_before_id := case when cardinality(ids) = p_limit then ids[p_limit] else next_before_id end;
        exit;
    end loop;
end
$$;

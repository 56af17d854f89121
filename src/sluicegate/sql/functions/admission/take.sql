-- Locks candidates of open queues and has each governed queue's policy admit its own: ids, with the lane and the decision instant of
-- each, in the candidates' order. closed are queues whose policy took fewer than were at hand, with the verdicts
-- asked for; busy those to ask again, held those of them that somebody keeps locked; lapsed how many candidates were lapsed claims. p_freed and p_lanes: see claim_request.
-- governed is read after the candidates are locked: a first policy waits for whoever read false (open_lanes).
-- grants: none
create or replace function sluicegate.take(
    p_queues bigint[], p_n integer, p_now timestamptz, p_freed bigint[], p_lanes smallint[], p_wait boolean,
    out ids bigint[], out lanes smallint[], out at timestamptz[], out lapsed integer, out closed bigint[], out verdicts jsonb, out busy bigint[],
    out held bigint[]
)
language plpgsql
set search_path = sluicegate, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_found record := sluicegate.candidates(p_queues, '{mid}', p_n, p_now);
    v_queues refcursor;
    v_queue record;
    v_admitted record;
    v_locked jsonb;
    v_at timestamptz;
begin
    ids := '{}';
    lanes := '{}';
    at := '{}';
    closed := '{}';
    verdicts := '{}';
    busy := '{}';
    held := '{}';
    lapsed := v_found.lapsed;
    if cardinality(v_found.ids) = 0 then
        return;
    end if;
    if cardinality(p_queues) = 1 then
        open v_queues for select q.id, q.governed, v_found.ids from sluicegate.queue q where q.id = p_queues[1];
    else
        open v_queues for
        select q.id, q.governed, c.ids
        from (
            select j.queue_id, array_agg(j.id order by i.ord) as ids
            from unnest(v_found.ids) with ordinality as i(id, ord)
            join sluicegate.job j on j.id = i.id and j.id = any (v_found.ids)
            group by j.queue_id
        ) c
        join sluicegate.queue q on q.id = c.queue_id
        -- A queue that needs all its lanes gets them only before another one holds any: each comes first at times.
        order by random();
    end if;
    loop
        fetch v_queues into v_queue;
        exit when not found;
        if not v_queue.governed then
            v_at := sluicegate.clock();
            ids := ids || v_queue.ids;
            lanes := lanes || array_fill(null::smallint, array[cardinality(v_queue.ids)]);
            at := at || array_fill(v_at, array[cardinality(v_queue.ids)]);
            continue;
        end if;
        if v_locked is not null then
            closed := closed || v_queue.id;
            verdicts := verdicts || jsonb_build_object(v_queue.id::text, v_locked);
            continue;
        end if;
        v_admitted := sluicegate.admit(v_queue.id, v_queue.ids, lapsed > 0, p_lanes[array_position(p_freed, v_queue.id)], p_wait);
        if v_admitted.state = 'ok' then
            ids := ids || v_admitted.ids;
            lanes := lanes || v_admitted.lanes;
            at := at || array_fill(v_admitted.at, array[cardinality(v_admitted.ids)]);
        end if;
        if v_admitted.state = 'held' then
            held := held || v_queue.id;
        end if;
        if v_admitted.state in ('busy', 'held')
            or (v_admitted.state = 'unavailable' and not (select q.governed from sluicegate.queue q where q.id = v_queue.id))
        then
            busy := busy || v_queue.id;
        elsif cardinality(v_admitted.ids) < cardinality(v_queue.ids) then
            closed := closed || v_queue.id;
            if v_admitted.verdict is not null and v_admitted.state <> 'ok' then
                verdicts := verdicts || jsonb_build_object(v_queue.id::text, v_admitted.verdict);
            end if;
        end if;
        if v_admitted.verdict ->> 'fault_code' = '55P03' then
            v_locked := v_admitted.verdict;
        end if;
    end loop;
    close v_queues;
    if cardinality(ids) > 1 and (cardinality(p_queues) > 1 or lapsed > 0) then
        select array_agg(x.id order by c.ord), array_agg(x.lane order by c.ord), array_agg(x.at order by c.ord) into ids, lanes, at
        from unnest(ids, lanes, at) as x(id, lane, at) join unnest(v_found.ids) with ordinality as c(id, ord) on c.id = x.id;
    end if;
end
$$;

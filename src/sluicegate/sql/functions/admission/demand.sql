-- What could be started now of each of some queues: the jobs that wait, counted to p_most, and no more of them than an open queue's limits
-- leave room for; of a closed queue why and until when, whether anything waits in it or not, since a job that is added later wakes nobody. And,
-- where nothing waits, when the next job is due. For whoever shares slots over several queues; only a claim decides. A name that no queue has
-- yet waits for nothing. Answers in the order of the names. Takes no lock. Raises SG001, SG002.
-- grants: worker
create or replace function sluicegate.demand(
    p_queues text[], p_most integer default 100, p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
set jit = off
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_now timestamptz := sluicegate.clock();
    v_queue record;
    v_verdict jsonb;
    v_locked jsonb;
    v_waiting integer;
    v_lapsed integer;
    v_room bigint;
    v_due timestamptz;
    v_answer jsonb := '[]';
begin
    if p_queues is null or cardinality(p_queues) not between 1 and 1000 then
        perform sluicegate.refuse('SG001', 'queues', 'Ask for 1 to 1,000 queues.', 'Send their names.');
    end if;
    if p_most is null or p_most not between 1 and 10000 then
        perform sluicegate.refuse('SG001', 'most', 'most is a whole number from 1 to 10,000.', 'Send how many slots are free.');
    end if;
    for v_queue in
        select n.name, q.id, q.governed
        from unnest(p_queues) with ordinality as n(name, ord)
        left join lateral (
            select k.id, k.governed from sluicegate.queue k where k.scope_id = v_scope_id and k.name = n.name offset 0
        ) q on true
        order by n.ord
    loop
        v_verdict := null;
        v_waiting := 0;
        v_due := null;
        if v_queue.id is not null then
            select count(*) filter (where not w.lapsed), count(*) filter (where w.lapsed) into v_waiting, v_lapsed
            from (
                (select false as lapsed from sluicegate.job j where j.queue_id = v_queue.id and j.state = 'pending' limit p_most)
                union all
                (select false from unnest('{alert,p1,mid,low}'::text[]) c
                cross join lateral sluicegate.due_heads(v_queue.id, c, v_now, p_most) limit p_most)
                union all
                (select true from sluicegate.job j where j.queue_id = v_queue.id and j.state = 'claimed' and j.lease_expires_at <= v_now
                    and j.attempt < j.max_attempts and j.cancel_requested_at is null limit p_most)
            ) w;
            v_waiting := least(v_waiting + v_lapsed, p_most);
            if v_waiting = 0 then
                v_due := (select s.run_at from sluicegate.scheduled_heads(v_queue.id, v_now, 1) s);
            end if;
        else
            perform sluicegate.check_queue_name(v_queue.name, 'queues');
        end if;
        if v_queue.governed then
            v_verdict := coalesce(v_locked, sluicegate.verdict(v_queue.id));
            if v_verdict ->> 'fault_code' = '55P03' then
                v_locked := v_verdict;
            end if;
            -- A takeover of a lapsed claim needs no place of its own.
            v_room := (
                select min((g ->> 'limit')::bigint - (g ->> 'used')::bigint + case g ->> 'gate' when 'in_flight' then v_lapsed else 0 end)
                from jsonb_array_elements(v_verdict -> 'gates') g
                where g ->> 'mode' = 'enforce' and g ->> 'gate' in ('window', 'in_flight')
            );
        end if;
        v_answer := v_answer || jsonb_build_object('queue', v_queue.name,
            'ready', case when v_verdict ->> 'state' = 'deferred' then 0
                when v_verdict is null then v_waiting
                else greatest(least(v_waiting, v_room), 0) end,
            'waiting', v_waiting, 'waiting_exact', v_waiting < p_most, 'reason', v_verdict ->> 'reason',
            'next_eligible_at', v_verdict -> 'next_eligible_at', 'exact', coalesce((v_verdict ->> 'exact')::boolean, true),
            'all', coalesce(v_verdict -> 'all', '[]'), 'next_due_at', v_due);
    end loop;
    return jsonb_build_object('queues', v_answer, 'server_time', v_now);
end
$$;

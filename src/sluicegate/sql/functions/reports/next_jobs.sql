-- What will run next and when, over a scope's queues or one of them: the heads of what waits, takeovers first, and of what is scheduled, with
-- the time each is expected to be admitted (null: unknown). Takes no lock. Raises SG001, SG002.
-- grants: worker, reader
create or replace function sluicegate.next_jobs(
    p_queue text default null, p_limit integer default 20, p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_now timestamptz := sluicegate.clock();
begin
    if p_limit is null or p_limit not between 1 and 200 then
        perform sluicegate.refuse('SG001', 'limit', 'A page has 1 to 200 jobs.', 'Ask for fewer.');
    end if;
    if p_queue is not null then
        perform sluicegate.known_queue(v_scope_id, p_queue);
    end if;
    return jsonb_build_object('server_time', v_now, 'jobs', (
        select coalesce(jsonb_agg(jsonb_build_object(
            'id', n.id, 'queue', n.queue, 'kind', n.kind, 'title', n.title, 'state', n.state, 'priority', n.priority, 'run_at', n.run_at,
            'status', n.status, 'reason', n.reason, 'expected_at', n.expected_at, 'exact', n.exact
        ) order by n.expected_at nulls last, n.turn nulls last, n.priority, n.run_at, n.id), '[]')
        from (
            select w.id, q.name as queue, j.kind, j.title, j.state, j.priority, j.run_at,
                case when w.due then v.verdict ->> 'state' else 'scheduled' end as status,
                case when w.due then v.verdict ->> 'reason' end as reason,
                e.at as expected_at, e.exact and (w.due or not q.governed) as exact,
                case when w.takeover then w.ahead end as turn
            from sluicegate.verdicts(array(
                select k.id from sluicegate.queue k where k.scope_id = v_scope_id and (p_queue is null or k.name = p_queue))) v
            join sluicegate.queue q on q.id = v.queue_id
            cross join lateral (
                select h.id, true as due, h.takeover, count(*) over (order by h.takeover desc, h.lapsed, h.priority, h.run_at, h.id) - 1 as ahead,
                    count(*) filter (where not h.takeover) over (order by h.takeover desc, h.lapsed, h.priority, h.run_at, h.id) - 1 as fresh
                from (
                    (
                        select true as takeover, j.lease_expires_at as lapsed, null::smallint as priority, null::timestamptz as run_at, j.id
                        from sluicegate.job j
                        where j.queue_id = q.id and j.state = 'claimed' and j.lease_expires_at <= v_now
                            and j.attempt < j.max_attempts and j.cancel_requested_at is null
                        order by j.lease_expires_at limit p_limit
                    )
                    union all
                    (
                        select false, null, j.priority, j.run_at, j.id from unnest('{alert,p1,mid,low}'::text[]) c
                        cross join lateral (
                            select j.priority, j.run_at, j.id from sluicegate.job j
                            where j.queue_id = q.id and j.class = c and j.state = 'pending'
                            order by j.priority, j.run_at, j.id limit p_limit
                        ) j
                    )
                    union all
                    select false, null, d.priority, d.run_at, d.id from unnest('{alert,p1,mid,low}'::text[]) c
                    cross join lateral sluicegate.due_heads(q.id, c, v_now, p_limit) d
                ) h
                union all
                select s.id, false, false, 0, 0 from sluicegate.scheduled_heads(q.id, v_now, p_limit) s
            ) w
            join sluicegate.job j on j.id = w.id
            cross join lateral sluicegate.expected_at(
                q.id, v.verdict, w.ahead, greatest(w.fresh, 0), w.takeover, case when w.due then v_now else j.run_at end) e
            order by expected_at nulls last, turn nulls last, j.priority, j.run_at, w.id
            limit p_limit
        ) n
    ));
end
$$;

-- What a proposed policy would have done with the claims of the last p_days days: for each UTC day how many were asked for, admitted at
-- once, deferred, and for how long. Plays the attempts in their order, at most the newest 20,000: one that is deferred waits for room, and
-- its place in flight lasts as long as it did; what earlier attempts had used, and held, is used and held at the beginning. Takes no lock,
-- changes nothing. Raises SG001, SG002.
-- grants: worker, reader
create or replace function sluicegate.rehearse(
    p_queue text, p_policy jsonb, p_days integer default 7, p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_now timestamptz := sluicegate.clock();
    v_queue_id bigint;
    v_fields jsonb;
    v_most integer;
    v_shut boolean;
    -- When places in flight come free: a heap, the earliest in front.
    v_slots timestamptz[] := '{}';
    v_size integer := 0;
    v_i integer;
    v_below integer;
    v_free timestamptz;
    v_limits jsonb[];
    v_max integer[];
    v_used integer[];
    v_ends timestamptz[];
    v_window record;
    v_attempt record;
    v_at timestamptz;
    v_again boolean;
    v_opened timestamptz[] := '{}';
    v_started timestamptz[] := '{}';
    v_count integer := 0;
begin
    if p_days is null or p_days not between 1 and 45 then
        perform sluicegate.refuse('SG001', 'days', 'A rehearsal looks back 1 to 45 days.', 'Ask for 1 to 45 days.');
    end if;
    v_queue_id := sluicegate.known_queue(v_scope_id, p_queue);
    v_fields := sluicegate.policy_fields(p_policy, sluicegate.window_limits(p_policy, sluicegate.owner_zone(v_scope_id)));
    -- A shadow limit refuses nothing.
    v_most := case when v_fields ->> 'in_flight_mode' = 'enforce' then (v_fields ->> 'max_in_flight')::integer end;
    v_limits := array(select e from jsonb_array_elements(v_fields -> 'limits') e where e ->> 'mode' = 'enforce');
    v_max := array(select (l ->> 'max_claims')::integer from unnest(v_limits) l);
    v_shut := coalesce(v_most = 0, false) or 0 = any (v_max)
        or ((v_fields ->> 'paused')::boolean and v_fields ->> 'paused_until' is null);
    v_at := (v_fields ->> 'paused_until')::timestamptz;

    for v_attempt in
        select a.id, a.opened_at, coalesce(e.ended_at, v_now) - a.opened_at as took
        from (
            select * from sluicegate.attempt a
            where a.queue_id = v_queue_id and a.opened_at >= v_now - make_interval(days => p_days)
            order by a.opened_at desc, a.id desc limit 20000
        ) a
        left join sluicegate.attempt_end e on e.attempt_id = a.id
        order by a.opened_at, a.id
    loop
        v_count := v_count + 1;
        v_opened[v_count] := v_attempt.opened_at;
        if v_shut then
            v_started[v_count] := null;
            continue;
        end if;
        v_at := greatest(v_attempt.opened_at, v_at);
        if v_count = 1 and v_most is not null then
            -- Of more than the cap, those that end last keep the next one out.
            v_slots := array(
                select h.ends
                from (
                    select coalesce(e.ended_at, v_now) as ends
                    from (
                        select b.id from sluicegate.attempt b
                        where b.queue_id = v_queue_id and (b.opened_at, b.id) < (v_attempt.opened_at, v_attempt.id)
                        order by b.opened_at desc, b.id desc limit 20000
                    ) b
                    left join sluicegate.attempt_end e on e.attempt_id = b.id
                    where coalesce(e.ended_at, v_now) > v_attempt.opened_at
                    order by 1 desc limit v_most
                ) h
                order by h.ends);
            v_size := cardinality(v_slots);
        end if;
        if v_size >= v_most then
            v_at := greatest(v_at, v_slots[1]);
        end if;
        loop
            v_again := false;
            for i in 1 .. cardinality(v_max) loop
                if v_ends[i] is null or v_ends[i] <= v_at then
                    select w.starts, w.ends into v_window
                    from sluicegate.window_at(v_limits[i] ->> 'period', v_limits[i] ->> 'tz', (v_limits[i] ->> 'starts_at')::interval,
                        (v_limits[i] ->> 'origin')::timestamptz, v_at) w;
                    v_used[i] := case when v_ends[i] is null then (
                            select count(*) from sluicegate.attempt b
                            where b.queue_id = v_queue_id and b.opened_at >= v_window.starts
                                and (b.opened_at, b.id) < (v_opened[1], v_attempt.id)
                        ) else 0 end;
                    v_ends[i] := v_window.ends;
                end if;
                if v_used[i] >= v_max[i] then
                    v_at := v_ends[i];
                    v_again := true;
                end if;
            end loop;
            exit when not v_again;
        end loop;
        v_started[v_count] := v_at;
        for i in 1 .. cardinality(v_max) loop
            v_used[i] := v_used[i] + 1;
        end loop;
        if v_most is not null then
            v_free := v_at + v_attempt.took;
            if v_size < v_most then
                v_size := v_size + 1;
                v_i := v_size;
                while v_i > 1 and v_slots[v_i / 2] > v_free loop
                    v_slots[v_i] := v_slots[v_i / 2];
                    v_i := v_i / 2;
                end loop;
            else
                v_i := 1;
                loop
                    v_below := 2 * v_i + (2 * v_i < v_size and v_slots[2 * v_i + 1] < v_slots[2 * v_i])::integer;
                    exit when v_below > v_size or v_slots[v_below] >= v_free;
                    v_slots[v_i] := v_slots[v_below];
                    v_i := v_below;
                end loop;
            end if;
            v_slots[v_i] := v_free;
        end if;
    end loop;
    return jsonb_build_object('queue', p_queue, 'days', p_days, 'claims', v_count,
        'never', (select count(*) from unnest(v_opened, v_started) x(opened, started) where x.started is null),
        'cut', v_count = 20000, 'server_time', v_now, 'per_day', (
            select coalesce(jsonb_agg(to_jsonb(d) order by d.day), '[]')
            from (
                select to_char(x.opened at time zone 'UTC', 'YYYY-MM-DD') as day, count(*) as claims,
                    count(*) filter (where x.started = x.opened) as admitted,
                    count(*) filter (where x.started is distinct from x.opened) as deferred,
                    count(*) filter (where x.started is null or x.started > v_now) as still_deferred,
                    coalesce(max(extract(epoch from x.started - x.opened)::double precision), 0) as longest_wait_seconds,
                    coalesce(sum(extract(epoch from x.started - x.opened)::double precision), 0) as total_wait_seconds
                from unnest(v_opened, v_started) x(opened, started)
                group by 1
            ) d
        ));
end
$$;

-- What a proposed policy would have done with the claims of the last p_days days: for each UTC day how many were asked for, admitted at
-- once, deferred, and for how long. Plays the attempts in their order; one that is deferred waits for room, and its place in
-- flight lasts as long as it did. At most the newest 20,000 attempts. Takes no lock, changes nothing. Raises SG001, SG002.
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
    v_slots timestamptz[] := '{}';
    v_slot integer;
    v_limits jsonb[];
    v_ends timestamptz[];
    v_used integer[];
    v_window record;
    v_attempt record;
    v_at timestamptz;
    v_free timestamptz;
    v_again boolean;
    v_day text;
    v_days jsonb := '{}';
    v_entry jsonb;
    v_wait double precision;
    v_count integer := 0;
    v_never integer := 0;
begin
    if p_days is null or p_days not between 1 and 45 then
        perform sluicegate.refuse('SG001', 'days', 'Attempts are kept for 45 days.', 'Ask for 1 to 45 days.');
    end if;
    select q.id into v_queue_id from sluicegate.queue q where q.scope_id = v_scope_id and q.name = p_queue;
    if not found then
        perform sluicegate.refuse('SG002', 'queue', format('There is no queue %L in this scope.', left(p_queue, 140)),
            'The first enqueue or policy creates a queue.');
    end if;
    v_fields := sluicegate.policy_fields(p_policy, sluicegate.window_limits(p_policy, sluicegate.owner_zone(v_scope_id)));
    -- A shadow limit refuses nothing.
    v_most := case when v_fields ->> 'in_flight_mode' = 'enforce' then (v_fields ->> 'max_in_flight')::integer end;
    v_limits := array(select e from jsonb_array_elements(v_fields -> 'limits') e where e ->> 'mode' = 'enforce');

    for v_attempt in
        select a.opened_at, coalesce(e.ended_at, v_now) - a.opened_at as took
        from (
            select * from sluicegate.attempt a
            where a.queue_id = v_queue_id and a.opened_at >= v_now - make_interval(days => p_days)
            order by a.opened_at desc limit 20000
        ) a
        left join sluicegate.attempt_end e on e.attempt_id = a.id
        order by a.opened_at, a.id
    loop
        v_count := v_count + 1;
        v_at := greatest(v_attempt.opened_at, v_at);
        if v_most = 0 or exists (select from unnest(v_limits) l where (l ->> 'max_claims')::integer = 0)
            or ((v_fields ->> 'paused')::boolean and v_fields ->> 'paused_until' is null)
        then
            v_at := null;
        else
            loop
                v_again := false;
                if v_most is not null and cardinality(v_slots) >= v_most then
                    select x.at, x.ord into v_free, v_slot from unnest(v_slots) with ordinality as x(at, ord) order by x.at limit 1;
                    v_at := greatest(v_at, v_free);
                else
                    v_slot := cardinality(v_slots) + 1;
                end if;
                for i in 1 .. coalesce(cardinality(v_limits), 0) loop
                    if v_ends[i] is null or v_ends[i] <= v_at then
                        select w.ends into v_window
                        from sluicegate.window_at(v_limits[i] ->> 'period', v_limits[i] ->> 'tz', (v_limits[i] ->> 'starts_at')::interval,
                            (v_limits[i] ->> 'origin')::timestamptz, v_at) w;
                        v_ends[i] := v_window.ends;
                        v_used[i] := 0;
                    end if;
                    if v_used[i] >= (v_limits[i] ->> 'max_claims')::integer then
                        v_at := v_ends[i];
                        v_again := true;
                    end if;
                end loop;
                exit when not v_again;
            end loop;
            v_slots[v_slot] := v_at + v_attempt.took;
            for i in 1 .. coalesce(cardinality(v_limits), 0) loop
                v_used[i] := v_used[i] + 1;
            end loop;
        end if;
        v_day := to_char(v_attempt.opened_at at time zone 'UTC', 'YYYY-MM-DD');
        v_entry := coalesce(v_days -> v_day, '{"claims": 0, "admitted": 0, "deferred": 0, "still_deferred": 0, "longest_wait_seconds": 0, "total_wait_seconds": 0}');
        v_wait := coalesce(extract(epoch from v_at - v_attempt.opened_at), 0);
        v_days := v_days || jsonb_build_object(v_day, v_entry || jsonb_build_object(
            'claims', (v_entry ->> 'claims')::bigint + 1,
            'admitted', (v_entry ->> 'admitted')::bigint + (v_at is not null and v_wait = 0)::integer,
            'deferred', (v_entry ->> 'deferred')::bigint + (v_at is null or v_wait > 0)::integer,
            'still_deferred', (v_entry ->> 'still_deferred')::bigint + (v_at is null or v_at > v_now)::integer,
            'longest_wait_seconds', greatest((v_entry ->> 'longest_wait_seconds')::double precision, v_wait),
            'total_wait_seconds', (v_entry ->> 'total_wait_seconds')::double precision + v_wait));
        v_never := v_never + (v_at is null)::integer;
    end loop;
    return jsonb_build_object('queue', p_queue, 'days', p_days, 'claims', v_count, 'never', v_never, 'cut', v_count = 20000, 'server_time', v_now,
        'per_day', (select coalesce(jsonb_agg(jsonb_build_object('day', d.key) || d.value order by d.key), '[]') from jsonb_each(v_days) d));
end
$$;

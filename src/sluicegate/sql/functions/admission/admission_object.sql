-- What a successful claim on a governed queue is told: the tightest window's figures in front, every window under limits. The
-- figures are those that gate_windows and gate_in_flight would show, summed over the lanes in one pass: this is paid by every claim.
-- The current window is the one the lane just charged has reached. Takes no lock.
-- grants: none
create or replace function sluicegate.admission_object(p_queue_id bigint) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off -- see admit_fast
set plan_cache_mode = force_generic_plan
as $$
declare
    v_policy sluicegate.policy;
    v_limit record;
    v_lane record;
    v_n integer := 0;
    v_flight integer := 0;
    v_starts timestamptz[];
    v_ends timestamptz[];
    v_used bigint[];
    v_entries jsonb[] := '{}';
    v_entry jsonb;
    v_left bigint;
    v_least bigint;
    v_tightest integer;
begin
    select p.* into v_policy from sluicegate.policy p where p.queue_id = p_queue_id;
    for v_lane in
        select l.used, l.forgiven, l.starts, l.ends, c.n
        from sluicegate.lane_now l
        cross join lateral (
            select count(*)::integer as n
            from (
                select from sluicegate.job j
                where j.queue_id = p_queue_id and j.lane = l.lane and j.state = 'claimed' and j.lane is not null
                    and j.attempt_id >= l.low
                order by j.attempt_id
                offset 0
            ) f
        ) c
        where l.queue_id = p_queue_id
    loop
        v_flight := v_flight + v_lane.n;
        for k in 1 .. cardinality(v_lane.used) loop
            if v_lane.starts[k] = v_starts[k] then
                v_used[k] := v_used[k] + v_lane.used[k] - v_lane.forgiven[k];
            elsif v_starts[k] is null or v_lane.starts[k] > v_starts[k] then
                v_starts[k] := v_lane.starts[k];
                v_ends[k] := v_lane.ends[k];
                v_used[k] := v_lane.used[k] - v_lane.forgiven[k];
            end if;
        end loop;
    end loop;
    if v_policy.loose then
        v_flight := v_flight + (
            select count(*) from sluicegate.job j where j.queue_id = p_queue_id and j.state = 'claimed' and j.lane is null);
    end if;
    -- In the order of window ids, as the lanes have them.
    for v_limit in
        select l.max_claims, l.mode, b.period from sluicegate.policy_limit l join sluicegate.budget_window b on b.id = l.window_id
        where l.queue_id = p_queue_id order by l.window_id
    loop
        v_n := v_n + 1;
        v_left := greatest(v_limit.max_claims - v_used[v_n], 0);
        v_entries[v_n] := jsonb_build_object('period', v_limit.period, 'max_claims_per_window', v_limit.max_claims, 'used', v_used[v_n],
            'remaining', v_left, 'window_resets_at', v_ends[v_n], 'mode', v_limit.mode);
        if v_limit.mode = 'enforce'
            and (v_least is null or (v_left, v_ends[v_n]) < (v_least, v_ends[v_tightest]))
        then
            v_least := v_left;
            v_tightest := v_n;
        end if;
    end loop;
    v_entry := v_entries[v_tightest];
    return jsonb_build_object(
        'max_in_flight', v_policy.max_in_flight, 'in_flight', v_flight,
        'max_claims_per_window', v_entry -> 'max_claims_per_window', 'used', v_entry -> 'used', 'remaining', v_entry -> 'remaining',
        'window_resets_at', v_entry -> 'window_resets_at',
        'limits', case
            when v_n < 2 then to_jsonb(v_entries)
            else (select jsonb_agg(x.entry order by x.ends) from unnest(v_entries, v_ends) x(entry, ends))
        end);
end
$$;

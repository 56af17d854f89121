-- Deals the shares of every limit anew over a queue's lanes. The caller has locked all of them, so nobody is mid-claim. p_charged
-- are the lanes of claims being admitted now, p_added those in which they are new, p_more how many were not in flight. After it the
-- shares of a window sum to its limit and the caps to what is free; in debt no lane has room (caps 0, shares at most
-- what is used). Both splits are even from p_first on, so what is free in all limits is free in some lane. Answers the instant it went by.
-- grants: none
create or replace function sluicegate.settle(
    p_queue_id bigint, p_now timestamptz, p_first integer default 0,
    p_charged smallint[] default '{}', p_added smallint[] default '{}', p_more integer default 0
) returns timestamptz
language plpgsql
set search_path = sluicegate, pg_temp
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_policy sluicegate.policy;
    v_limits record;
    v_lanes sluicegate.lane[];
    v_lane sluicegate.lane;
    v_claimed integer[];
    v_low bigint[];
    v_loose integer;
    v_free integer;
    v_total integer;
    v_forgiven integer;
    v_left integer;
    v_sum integer;
    v_n integer;
    v_at integer;
    v_part integer;
    v_now timestamptz;
begin
    select p.* into strict v_policy from sluicegate.policy p where p.queue_id = p_queue_id;
    v_lanes := array(
        select l.row
        from generate_series(0, v_policy.made - 1) s(lane)
        cross join lateral (
            select k as row from sluicegate.lane k where k.queue_id = p_queue_id and k.lane = s.lane order by k.gen desc limit 1
        ) l
        order by s.lane
    );
    -- Windows never go back: under a clock that was set back all lanes go on in the latest window that one of them is in.
    v_now := greatest(p_now, (select max(t) from unnest(v_lanes) x cross join unnest(x.starts) t));
    select array_agg(l.window_id order by l.window_id) as windows, array_agg(l.max_claims order by l.window_id) as most,
        array_agg(l.mode = 'enforce' order by l.window_id) as enforced,
        array_agg(coalesce(h.starts, w.starts) order by l.window_id) as starts,
        array_agg(coalesce(h.ends, w.ends) order by l.window_id) as ends
    into v_limits
    from sluicegate.policy_limit l
    join sluicegate.budget_window b on b.id = l.window_id
    cross join lateral sluicegate.window_at(b.period, b.tz, b.starts_at, b.origin, v_now) w
    -- The window that a lane is in already, which new lanes join.
    left join lateral (
        select x.starts, x.ends
        from unnest(v_lanes) a cross join unnest(a.windows, a.starts, a.ends) as x(window_id, starts, ends)
        where x.window_id = l.window_id and x.ends > v_now
        order by x.starts desc
        limit 1
    ) h on true
    where l.queue_id = p_queue_id;

    v_n := cardinality(v_lanes);
    -- One statement, so one snapshot: a claim that ended between two counts would be dealt out twice.
    select array_agg(c.n + (select count(*) from unnest(p_added) a where a = x.lane) order by x.lane),
        array_agg(coalesce(c.low, x.low) order by x.lane), sum(c.n) + p_more
    into v_claimed, v_low, v_total
    from unnest(v_lanes) x
    cross join lateral (
        select count(*) as n, min(f.attempt_id) as low
        from (
            select j.attempt_id from sluicegate.job j
            where j.queue_id = p_queue_id and j.lane = x.lane and j.state = 'claimed' and j.lane is not null and j.attempt_id >= x.low
            order by j.attempt_id
            offset 0
        ) f
    ) c;
    if v_policy.loose then
        -- Claims from before the policy end, and never become more.
        v_loose := (select count(*) from sluicegate.job j where j.queue_id = p_queue_id and j.state = 'claimed' and j.lane is null);
        v_total := v_total + v_loose;
        if v_loose = 0 and not v_policy.opening then
            update sluicegate.policy p set loose = false where p.queue_id = p_queue_id;
        end if;
    end if;
    -- Claims without a lane, made before the policy, count in the total though no lane holds them.
    v_free := v_policy.max_in_flight - v_total;

    for i in 1 .. v_n loop
        v_lane := sluicegate.lane_align(v_lanes[i], v_limits.windows, v_limits.starts, v_limits.ends, v_now);
        v_lane.live := v_lane.lane < v_policy.lanes;
        v_lane.low := v_low[i];
        v_lane.is_open := not v_policy.opening;
        v_lane.paused_until := case when v_policy.paused then coalesce(v_policy.paused_until, 'infinity') end;
        v_at := (v_lane.lane - p_first % v_policy.lanes + v_policy.lanes) % v_policy.lanes;
        v_lane.cap := case
            when v_policy.max_in_flight is null or v_policy.in_flight_mode = 'shadow' then null
            when v_free < 0 then 0
            when v_lane.live then v_claimed[i] + v_free / v_policy.lanes + (v_at < v_free % v_policy.lanes)::integer
            else v_claimed[i]
        end;
        v_part := (select count(*) from unnest(p_charged) c where c = v_lane.lane);
        for k in 1 .. coalesce(cardinality(v_limits.windows), 0) loop
            v_lane.used[k] := v_lane.used[k] + v_part;
        end loop;
        v_lanes[i] := v_lane;
    end loop;

    for k in 1 .. coalesce(cardinality(v_limits.windows), 0) loop
        v_sum := (select sum(x.used[k]) from unnest(v_lanes) x);
        v_forgiven := coalesce((
            select f.amount from sluicegate.forgiven f where f.window_id = v_limits.windows[k] and f.starts = v_lanes[1].starts[k]), 0);
        v_free := v_limits.most[k] - (v_sum - v_forgiven);
        v_left := v_forgiven;
        for i in 1 .. v_n loop
            v_lane := v_lanes[i];
            v_lane.forgiven[k] := least(v_left, v_lane.used[k]);
            v_left := v_left - v_lane.forgiven[k];
            v_at := (v_lane.lane - p_first % v_policy.lanes + v_policy.lanes) % v_policy.lanes;
            v_part := v_lane.used[k] - v_lane.forgiven[k];
            v_lane.shares[k] := case
                when not v_limits.enforced[k] then null
                when v_free < 0 then (v_part::bigint * v_limits.most[k] / (v_sum - v_forgiven))::integer
                when v_lane.live then v_part + v_free / v_policy.lanes + (v_at < v_free % v_policy.lanes)::integer
                else v_part
            end;
            v_lanes[i] := v_lane;
        end loop;
        -- In debt the rounded-down shares sum to a little under the limit: hand out the rest where it gives no room.
        if v_free < 0 and v_limits.enforced[k] then
            v_left := v_limits.most[k] - (select sum(x.shares[k]) from unnest(v_lanes) x);
            for i in 1 .. v_n loop
                exit when v_left = 0;
                v_lane := v_lanes[i];
                if v_lane.shares[k] < v_lane.used[k] - v_lane.forgiven[k] then
                    v_lane.shares[k] := v_lane.shares[k] + 1;
                    v_left := v_left - 1;
                    v_lanes[i] := v_lane;
                end if;
            end loop;
        end if;
    end loop;

    update sluicegate.lane l
    set live = x.live, is_open = x.is_open, paused_until = x.paused_until, cap = x.cap, windows = x.windows,
        shares = x.shares, used = x.used, forgiven = x.forgiven, starts = x.starts, ends = x.ends, low = x.low
    from unnest(v_lanes) x
    where l.queue_id = x.queue_id and l.lane = x.lane and l.gen = x.gen;
    return v_now;
end
$$;

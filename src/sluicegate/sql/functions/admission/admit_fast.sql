-- Charges up to p_takeovers + p_fresh claims of a governed queue to one lane, or two more while the batch is not full.
-- Lanes are taken with SKIP LOCKED and no condition on room; if none was free, exactly one is waited for, and only by a call
-- that holds no lane. Under each lock: its row; in a later statement the count; then the clock, so that what the count no longer
-- saw ended before the decision. Takeovers are lapsed claims of p_lane: they cost no in-flight room, unless the lane is in debt.
-- grants: none
create or replace function sluicegate.admit_fast(
    p_queue_id bigint, p_lanes smallint, p_lane smallint, p_takeovers integer, p_fresh integer, p_may_wait boolean,
    out takeovers integer, out lanes smallint[], out at timestamptz, out locked integer
)
language plpgsql
set search_path = sluicegate, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_lane sluicegate.lane;
    v_first integer := coalesce(p_lane, floor(random() * p_lanes)::integer);
    v_tries integer := least(p_lanes, 3);
    v_now timestamptz;
    v_starts timestamptz[];
    v_room integer;
    v_flight integer;
    v_fresh integer;
    v_taken integer;
begin
    lanes := '{}';
    locked := 0;
    takeovers := 0;
    for v_try in 0 .. v_tries loop
        if v_try < v_tries then
            select l.* into v_lane from sluicegate.lane l
            where l.queue_id = p_queue_id and l.lane = (v_first + v_try) % p_lanes
            for no key update skip locked;
        else
            exit when locked > 0 or not p_may_wait;
            select l.* into v_lane from sluicegate.lane l
            where l.queue_id = p_queue_id and l.lane = v_first % p_lanes
            for no key update;
        end if;
        continue when not found;
        locked := locked + 1;
        v_flight := case when v_lane.cap is not null then v_lane.cap - sluicegate.lane_claimed(p_queue_id, v_lane.lane) end;
        v_now := sluicegate.clock();
        continue when not (v_lane.is_open and v_lane.live) or v_lane.paused_until > v_now;
        if v_now >= any (v_lane.ends) then
            v_lane := sluicegate.lane_roll(v_lane, v_now);
        end if;
        -- All of a batch belongs to the same windows: a lane that a peer has rolled on is left for the next call.
        continue when v_starts <> v_lane.starts;
        v_room := sluicegate.lane_room(v_lane);
        v_taken := case when v_lane.lane = p_lane and coalesce(v_flight, 0) >= 0 then least(p_takeovers, v_room) else 0 end;
        v_fresh := greatest(least(p_fresh + takeovers - cardinality(lanes), v_room - v_taken, v_flight), 0);
        continue when v_taken + v_fresh = 0;
        update sluicegate.lane l
        set used = array(select u + v_taken + v_fresh from unnest(v_lane.used) with ordinality as x(u, ord) order by ord),
            forgiven = v_lane.forgiven, starts = v_lane.starts, ends = v_lane.ends
        where l.queue_id = p_queue_id and l.lane = v_lane.lane;
        at := v_now;
        v_starts := v_lane.starts;
        takeovers := takeovers + v_taken;
        lanes := lanes || array_fill(v_lane.lane, array[v_taken + v_fresh]);
        exit when cardinality(lanes) - takeovers = p_fresh;
    end loop;
end
$$;

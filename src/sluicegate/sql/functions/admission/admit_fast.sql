-- Charges up to p_takeovers + p_fresh claims of a governed queue to one lane, or on to others while the batch is not full. spare: what
-- all lanes together would still admit though none alone does, 0 unless all were seen. SKIP LOCKED, no condition on room; if none was free,
-- one is waited for, by a call that holds none. Under each lock: its row; in a later statement the count; then the clock, so what the count
-- no longer saw had ended. Takeovers of p_lane cost no in-flight room but in debt; p_elsewhere of p_fresh are takeovers of other lanes.
-- grants: none
create or replace function sluicegate.admit_fast(
    p_queue_id bigint, p_lanes smallint, p_capped boolean, p_windows bigint[], p_shadows integer[], p_lane smallint, p_takeovers integer,
    p_elsewhere integer, p_fresh integer, p_may_wait boolean,
    out takeovers integer, out lanes smallint[], out at timestamptz, out locked integer, out spare integer
)
language plpgsql
set search_path = sluicegate, pg_temp
set enable_bitmapscan = off
set enable_sort = off -- only job_flight has the order of the count, whatever statistics say of the others
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_lane sluicegate.lane;
    v_first integer := coalesce(p_lane, floor(random() * p_lanes)::integer);
    v_seen integer := 0;
    v_at integer;
    v_now timestamptz;
    v_starts timestamptz[];
    v_room integer;
    v_flight integer;
    v_low bigint;
    v_free integer;
    v_fresh integer;
    v_taken integer;
    v_flights integer := 0;
    v_rooms integer[];
begin
    lanes := '{}';
    locked := 0;
    takeovers := 0;
    spare := 0;
    for v_try in 0 .. p_lanes loop
        exit when v_try = p_lanes and (locked > 0 or not p_may_wait);
        -- Three full lanes are enough to ask the verdict; a batch that has begun is filled from all of them.
        continue when v_try between 3 and p_lanes - 1 and cardinality(lanes) = 0;
        v_at := (v_first + v_try) % p_lanes;
        if v_try < p_lanes then
            if locked = 1 or not p_may_wait then
                -- Whoever holds a lane must not wait, and SKIP LOCKED can: when the one that changed the row ends just then, it goes on to the
                -- new version and waits for whoever has locked that. Then admit gives these lanes up. Not in a block of its own here: a row
                -- that is locked in a subtransaction which ended well is waited for to the end of the whole transaction, whatever becomes of it.
                perform sluicegate.wait_at_most('200 ms');
            end if;
            select l.* into v_lane from sluicegate.lane l
            where l.queue_id = p_queue_id and l.lane = v_at and l.gen >= (
                select k.gen from sluicegate.lane k where k.queue_id = p_queue_id and k.lane = v_at order by k.gen desc limit 1
            )
            for no key update skip locked;
        else
            select l.* into v_lane from sluicegate.lane l
            where l.queue_id = p_queue_id and l.lane = v_at and l.gen >= (
                select k.gen from sluicegate.lane k where k.queue_id = p_queue_id and k.lane = v_at order by k.gen desc limit 1
            )
            for no key update;
        end if;
        continue when not found;
        locked := locked + 1;
        -- A lane without a share of a limit would admit without end; and the policy may have changed since it was read.
        continue when v_lane.windows <> p_windows or array_positions(v_lane.shares, null) <> p_shadows
            or (v_lane.cap is not null) <> p_capped;
        -- What the lane has in flight, and the lowest attempt id that a later count need look at: ids are drawn under the lane's lock, so
        -- every later claim of the lane has a higher one.
        select count(*), coalesce(min(f.attempt_id), (select s.last_value from sluicegate.attempt_id_seq s)) into v_flight, v_low
        from (
            select j.attempt_id from sluicegate.job j
            where j.queue_id = p_queue_id and j.lane = v_lane.lane and j.state = 'claimed' and j.lane is not null
                and j.attempt_id >= v_lane.low
            order by j.attempt_id
            offset 0
        ) f;
        v_free := v_lane.cap - v_flight;
        v_now := sluicegate.clock();
        continue when not (v_lane.is_open and v_lane.live) or v_lane.paused_until > v_now;
        if v_now >= any (v_lane.ends) then
            v_lane := sluicegate.lane_roll(v_lane, v_now);
        end if;
        -- All of a batch belongs to the same windows: a lane that a peer has rolled on is left for the next call.
        continue when v_starts <> v_lane.starts;
        if v_now < any (v_lane.starts) then
            -- The clock was set back: nothing opens before the window that it is charged to.
            v_now := (select max(s) from unnest(v_lane.starts) s);
        end if;
        v_seen := v_seen + 1;
        v_room := null;
        for k in 1 .. cardinality(v_lane.shares) loop
            -- A share of null is that of a shadow limit: counted, never enforced.
            continue when v_lane.shares[k] is null;
            v_room := least(v_room, greatest(v_lane.shares[k] + v_lane.forgiven[k] - v_lane.used[k], 0));
        end loop;
        if p_lanes > 1 and p_takeovers + p_fresh > 1 then
            v_flights := v_flights + v_free;
            v_rooms := array(
                select x.share + x.forgiven - x.used + coalesce(v_rooms[x.ord], 0)
                from unnest(v_lane.shares, v_lane.forgiven, v_lane.used) with ordinality as x(share, forgiven, used, ord) order by x.ord);
        end if;
        v_taken := case when v_lane.lane = p_lane and coalesce(v_free, 0) >= 0 then least(p_takeovers, v_room) else 0 end;
        v_fresh := greatest(least(p_fresh + takeovers - cardinality(lanes), v_room - v_taken, v_free), 0);
        continue when v_taken + v_fresh = 0;
        for k in 1 .. cardinality(v_lane.used) loop
            v_lane.used[k] := v_lane.used[k] + v_taken + v_fresh;
        end loop;
        update sluicegate.lane l
        set used = v_lane.used, gen = l.gen + (l.writes = 63)::integer, writes = (l.writes + 1) % 64, low = v_low, forgiven = v_lane.forgiven,
            starts = v_lane.starts, ends = v_lane.ends
        where l.queue_id = p_queue_id and l.lane = v_lane.lane and l.gen = v_lane.gen;
        at := v_now;
        v_starts := v_lane.starts;
        takeovers := takeovers + v_taken;
        lanes := lanes || array_fill(v_lane.lane, array[v_taken + v_fresh]);
        exit when cardinality(lanes) = p_takeovers + p_fresh;
    end loop;
    if v_seen = p_lanes and p_lanes > 1 and cardinality(lanes) between 1 and p_takeovers + p_fresh - 1 then
        spare := greatest(least((select min(r) from unnest(v_rooms) r) - cardinality(lanes),
            -- In their own lanes the others would cost no room either.
            v_flights - cardinality(lanes) + case when v_flights < 0 then 0 else p_takeovers + p_elsewhere end,
            p_takeovers + p_fresh - cardinality(lanes)), 0);
    end if;
end
$$;

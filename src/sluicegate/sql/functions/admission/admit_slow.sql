-- The exact way, for when no single lane could say: locks every lane of the queue in order, waiting, holding none before; counts the
-- whole queue, charges, and settles the shares. Takeovers (lapsed claims) cost no in-flight room unless the queue is in debt.
-- grants: none
create or replace function sluicegate.admit_slow(
    p_queue_id bigint, p_takeovers smallint[], p_fresh integer, p_first integer,
    out takeovers integer, out lanes smallint[], out at timestamptz
)
language plpgsql
set search_path = sluicegate, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_policy sluicegate.policy;
    v_room integer;
    v_free integer;
    v_fresh integer;
    v_first smallint;
begin
    lanes := '{}';
    takeovers := 0;
    perform sluicegate.lock_lanes(p_queue_id);
    perform sluicegate.check_policy(p_queue_id);
    select p.* into strict v_policy from sluicegate.policy p where p.queue_id = p_queue_id;
    -- The count before the clock: what it no longer sees had ended before the decision instant.
    v_free := v_policy.max_in_flight - sluicegate.flight(p_queue_id);
    at := sluicegate.clock();
    if v_policy.opening or (v_policy.paused and coalesce(v_policy.paused_until > at, true)) then
        return;
    end if;
    v_first := (p_first % v_policy.lanes)::smallint;
    at := sluicegate.settle(p_queue_id, at, v_first);
    select min(w.room)::integer into v_room
    from (
        select sum(x.share + x.forgiven - x.used) as room
        from sluicegate.lane l
        cross join unnest(l.windows, l.shares, l.forgiven, l.used) as x(window_id, share, forgiven, used)
        where l.queue_id = p_queue_id and x.share is not null
        group by x.window_id
    ) w;
    if v_policy.in_flight_mode = 'shadow' then
        v_free := null;
    end if;
    takeovers := case when coalesce(v_free, 0) >= 0 then greatest(least(cardinality(p_takeovers), v_room), 0) else 0 end;
    v_fresh := greatest(least(p_fresh, v_room - takeovers, v_free), 0);
    -- A takeover keeps its lane while that is a live one.
    lanes := array(
        select case when t.lane < v_policy.lanes then t.lane else v_first end
        from unnest(p_takeovers) with ordinality as t(lane, ord) where t.ord <= takeovers order by t.ord
    ) || array_fill(v_first, array[v_fresh]);
    if takeovers + v_fresh > 0 then
        perform sluicegate.settle(p_queue_id, at, v_first, lanes,
            array(select case when t.lane is distinct from n.lane then n.lane end
                from unnest(lanes) with ordinality as n(lane, ord)
                left join unnest(p_takeovers) with ordinality as t(lane, ord) on t.ord = n.ord and t.ord <= takeovers),
            v_fresh);
    end if;
end
$$;

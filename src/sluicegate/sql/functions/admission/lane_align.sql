-- A lane's row with exactly the policy's windows, rolled to p_now. A window it already had keeps its use; one it leaves is archived as
-- partial; a new one begins with nothing used (seed_windows puts in what attempts had already opened). The caller holds all lanes.
-- grants: none
create or replace function sluicegate.lane_align(
    p_lane sluicegate.lane, p_windows bigint[], p_starts timestamptz[], p_ends timestamptz[], p_now timestamptz
) returns sluicegate.lane
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_old sluicegate.lane := p_lane;
    v_at integer;
begin
    if cardinality(v_old.ends) > 0 and p_now >= any (v_old.ends) then
        v_old := sluicegate.lane_roll(v_old, p_now);
    end if;
    p_lane.windows := coalesce(p_windows, '{}');
    p_lane.shares := '{}';
    p_lane.used := '{}';
    p_lane.forgiven := '{}';
    p_lane.starts := '{}';
    p_lane.ends := '{}';
    for k in 1 .. cardinality(p_lane.windows) loop
        v_at := array_position(v_old.windows, p_windows[k]);
        p_lane.used[k] := coalesce(v_old.used[v_at], 0);
        p_lane.forgiven[k] := 0;
        p_lane.shares[k] := 0;
        p_lane.starts[k] := coalesce(v_old.starts[v_at], p_starts[k]);
        p_lane.ends[k] := coalesce(v_old.ends[v_at], p_ends[k]);
    end loop;
    insert into sluicegate.usage as u (window_id, starts, lane, queue_id, ends, used, partial)
    select o.window_id, o.starts, p_lane.lane, p_lane.queue_id, o.ends, o.used, true
    from unnest(v_old.windows, v_old.starts, v_old.ends, v_old.used) as o(window_id, starts, ends, used)
    where o.window_id <> all (p_lane.windows) and o.used > 0
    on conflict (window_id, starts, lane) do update set used = excluded.used, partial = excluded.partial;
    return p_lane;
end
$$;

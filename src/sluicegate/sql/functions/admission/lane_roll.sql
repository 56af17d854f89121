-- A lane's row as it stands at p_now: windows whose end has passed are archived into usage and begin anew with nothing used.
-- Never back: a clock that was set back leaves the later window in force. The caller holds the lane's lock and writes the row.
-- Archives idempotently, since a claim that then refuses leaves the lane as it was.
-- grants: none
create or replace function sluicegate.lane_roll(p_lane sluicegate.lane, p_now timestamptz) returns sluicegate.lane
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_window record;
begin
    for i in 1 .. cardinality(p_lane.windows) loop
        continue when p_lane.ends[i] > p_now;
        if p_lane.used[i] > 0 then
            insert into sluicegate.usage as u (window_id, starts, lane, queue_id, ends, used)
            values (p_lane.windows[i], p_lane.starts[i], p_lane.lane, p_lane.queue_id, p_lane.ends[i], p_lane.used[i])
            on conflict (window_id, starts, lane) do update set used = excluded.used;
        end if;
        select w.starts, w.ends into v_window
        from sluicegate.budget_window b, sluicegate.window_at(b.period, b.tz, b.starts_at, b.origin, p_now) w
        where b.id = p_lane.windows[i];
        -- New rules for a zone may move the border back: what has been charged is not charged to the next window as well.
        p_lane.starts[i] := greatest(v_window.starts, p_lane.ends[i]);
        p_lane.ends[i] := v_window.ends;
        p_lane.used[i] := 0;
        p_lane.forgiven[i] := 0;
    end loop;
    return p_lane;
end
$$;

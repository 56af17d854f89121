-- Puts what attempts have already opened in the current window into lane 0, for windows that were not counted until now. The
-- caller holds all lanes and no claim is in the air, so the count is complete; settle follows. What an earlier life of
-- the window archived is in that count, so its archive rows go.
-- grants: none
create or replace function sluicegate.seed_windows(p_queue_id bigint, p_windows bigint[], p_now timestamptz) returns void
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
declare
    v_window record;
    v_lane record;
begin
    for v_window in
        select b.id, w.starts, w.ends
        from sluicegate.budget_window b, sluicegate.window_at(b.period, b.tz, b.starts_at, b.origin, p_now) w
        where b.id = any (p_windows)
    loop
        delete from sluicegate.usage u where u.window_id = v_window.id and u.starts >= v_window.starts;
        for v_lane in select l.lane, array_position(l.windows, v_window.id) as at from sluicegate.lane l where l.queue_id = p_queue_id loop
            update sluicegate.lane l
            set used[v_lane.at] = case when l.lane > 0 then 0 else (
                    select count(*) from sluicegate.attempt a where a.queue_id = p_queue_id and a.opened_at >= v_window.starts
                ) end
            where l.queue_id = p_queue_id and l.lane = v_lane.lane;
        end loop;
    end loop;
end
$$;

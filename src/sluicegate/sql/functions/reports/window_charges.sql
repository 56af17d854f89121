-- What was charged to the windows of one definition, the newest p_most of those kept: archived lane by lane, or still in the lanes, which
-- archive a window that has ended when they are next charged. partial: the limit went before the window ended. Takes no lock.
-- grants: none
create or replace function sluicegate.window_charges(p_queue_id bigint, p_window_id bigint, p_most integer)
returns table (starts timestamptz, ends timestamptz, charged bigint, forgiven bigint, partial boolean)
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    select u.starts, max(u.ends), sum(u.used)::bigint, coalesce(max(f.amount), 0)::bigint, bool_or(u.partial)
    from (
        select o.starts, o.ends, o.used, o.partial from sluicegate.usage o where o.window_id = p_window_id
        union all
        select x.starts, x.ends, x.used, false
        from sluicegate.lane_now l
        cross join unnest(l.windows, l.starts, l.ends, l.used) as x(window_id, starts, ends, used)
        where l.queue_id = p_queue_id and x.window_id = p_window_id and x.used > 0 and not exists (
            select from sluicegate.usage o where o.window_id = p_window_id and o.starts = x.starts and o.lane = l.lane
        )
    ) u
    left join sluicegate.forgiven f on f.window_id = p_window_id and f.starts = u.starts
    group by u.starts
    order by u.starts desc
    limit p_most;
end
$$;

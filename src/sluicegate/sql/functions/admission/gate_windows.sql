-- Each window limit of a queue as a gate: its number, what was charged less what was forgiven, and the boundary at which it opens.
-- The current window is the lanes' own where they are ahead: windows never go back. Lanes that a first policy keeps closed do not count
-- yet: there the attempts do. A limit of 0 is a pause. Takes no lock. Raises whatever an unknown zone raises.
-- grants: none
create or replace function sluicegate.gate_windows(
    p_queue_id bigint, p_now timestamptz, out gate text, out period text, out mode text, out capacity integer, out used bigint,
    out closed boolean, out reason text, out starts timestamptz, out until timestamptz, out exact boolean, out window_id bigint
) returns setof record
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    with charged as (
        select x.window_id, x.starts, max(x.ends) as ends, sum(x.used - x.forgiven)::bigint as used
        from sluicegate.lane_now a cross join lateral unnest(a.windows, a.starts, a.ends, a.used, a.forgiven)
            as x(window_id, starts, ends, used, forgiven)
        where a.queue_id = p_queue_id
        group by x.window_id, x.starts
    )
    select 'window', b.period::text, l.mode::text, l.max_claims, u.used, l.mode = 'enforce' and u.used >= l.max_claims,
        case when l.max_claims = 0 then 'paused' else 'window_exhausted' end,
        c.starts, case when l.max_claims > 0 then c.ends end, l.max_claims > 0, l.window_id
    from sluicegate.policy p
    join sluicegate.policy_limit l on l.queue_id = p.queue_id
    join sluicegate.budget_window b on b.id = l.window_id
    cross join lateral sluicegate.window_at(b.period, b.tz, b.starts_at, b.origin, p_now) w
    cross join lateral (
        -- A window that a lane is in holds to its end, also when the zone's rules have changed meanwhile.
        select d.starts, d.ends, d.used
        from (
            select false as held, greatest(w.starts, (select max(h.ends) from charged h where h.window_id = l.window_id)) as starts,
                w.ends, 0::bigint as used
            union all
            select true, h.starts, h.ends, h.used from charged h where h.window_id = l.window_id and h.ends > p_now
        ) d
        order by d.held desc, d.starts desc
        limit 1
    ) c
    cross join lateral (
        select case when not p.opening then c.used else (
            select count(*) from sluicegate.attempt a where a.queue_id = p_queue_id and a.opened_at >= c.starts
        ) - coalesce((
            select f.amount from sluicegate.forgiven f where f.window_id = l.window_id and f.starts = c.starts
        ), 0) end as used
    ) u
    where p.queue_id = p_queue_id;
end
$$;

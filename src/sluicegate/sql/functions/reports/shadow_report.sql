-- What the shadow limits of a queue would have refused, had they been enforced: charges beyond a window's limit, in the current window and
-- in those kept of the past; for what is in flight, claims that were made while so many or more were, of the newest 20,000
-- attempts of the last 7 days. Nothing where it cannot be read, like the policy itself. Takes no lock.
-- grants: none
create or replace function sluicegate.shadow_report(p_queue_id bigint, p_now timestamptz) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set lock_timeout = '1s'
as $$
begin
    return (
        select coalesce(jsonb_agg(s.entry order by s.ord, s.id), '[]')
        from (
            select 1 as ord, b.id, jsonb_build_object('gate', 'window', 'period', b.period, 'limit', l.max_claims,
                'refused', coalesce(sum(c.over) filter (where c.ends > p_now), 0),
                'refused_before', coalesce(sum(c.over) filter (where c.ends <= p_now), 0),
                'since', min(c.starts)) as entry
            from sluicegate.policy_limit l
            join sluicegate.budget_window b on b.id = l.window_id
            left join lateral (
                select w.starts, w.ends, greatest(w.charged - w.forgiven - l.max_claims, 0) as over
                from sluicegate.window_charges(p_queue_id, l.window_id, null) w
            ) c on true
            where l.queue_id = p_queue_id and l.mode = 'shadow'
            group by b.id, b.period, l.max_claims
            union all
            select 2, 0, jsonb_build_object('gate', 'in_flight', 'period', null, 'limit', p.max_in_flight,
                'refused', count(*) filter (where f.step = 1 and f.before >= p.max_in_flight), 'refused_before', null,
                'since', min(f.at))
            from sluicegate.policy p
            left join lateral (
                select e.at, e.step, coalesce(sum(e.step) over (
                    order by e.at, e.step rows between unbounded preceding and 1 preceding), 0) as before
                from (
                    select a.id, a.opened_at from sluicegate.attempt a
                    where a.queue_id = p_queue_id and a.opened_at >= p_now - interval '7 days'
                    order by a.opened_at desc limit 20000
                ) a
                left join sluicegate.attempt_end d on d.attempt_id = a.id
                cross join lateral (values (a.opened_at, 1), (d.ended_at, -1)) as e(at, step)
                where e.at is not null
            ) f on true
            where p.queue_id = p_queue_id and p.in_flight_mode = 'shadow' and p.max_in_flight is not null
            group by p.max_in_flight
        ) s
    );
exception
    when undefined_table or lock_not_available then
        return '[]'::jsonb;
end
$$;

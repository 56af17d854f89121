-- A queue's policy as write_policy stored it, canonical: what a change that names only some fields starts from. Null without one. Takes
-- no lock.
-- grants: none
create or replace function sluicegate.policy_kept(p_queue_id bigint) returns jsonb
language sql stable
set search_path = sluicegate, pg_temp
set timezone = 'UTC' -- a time near the year 9999 lies beyond it in others
as $$
select jsonb_build_object(
    'max_in_flight', p.max_in_flight, 'in_flight_mode', p.in_flight_mode, 'paused', p.paused, 'paused_reason', p.paused_reason,
    'paused_until', p.paused_until, 'lanes', p.lanes_wished,
    'limits', (
        select coalesce(jsonb_agg(jsonb_build_object('max_claims', l.max_claims, 'mode', l.mode, 'period', b.period, 'tz', b.tz,
            'starts_at', b.starts_at, 'origin', b.origin) order by b.id), '[]')
        from sluicegate.policy_limit l join sluicegate.budget_window b on b.id = l.window_id
        where l.queue_id = p.queue_id
    ))
from sluicegate.policy p where p.queue_id = p_queue_id
$$;

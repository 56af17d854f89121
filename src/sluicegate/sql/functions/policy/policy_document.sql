-- A queue's policy as people write it, null without one: what set accepts, show prints and the audit keeps.
-- grants: none
create or replace function sluicegate.policy_document(p_queue_id bigint) returns jsonb
language sql stable
set search_path = sluicegate, pg_temp
as $$
select jsonb_build_object(
    'max_in_flight', p.max_in_flight, 'in_flight_mode', p.in_flight_mode, 'paused', p.paused, 'paused_reason', p.paused_reason,
    'paused_until', p.paused_until, 'lanes', p.lanes_wished, 'revision', p.revision,
    'limits', (
        select coalesce(jsonb_agg(jsonb_build_object(
            'max_claims_per_window', l.max_claims, 'mode', l.mode,
            'window', jsonb_strip_nulls(jsonb_build_object(
                'period', b.period, 'tz', b.tz,
                'start', to_char(timestamp 'epoch' + (b.starts_at - make_interval(days => extract(day from b.starts_at)::integer)),
                    'HH24:MI'),
                'weekday', case when b.period = 'week'
                    then ('{Mon,Tue,Wed,Thu,Fri,Sat,Sun}'::text[])[extract(day from b.starts_at)::integer + 1] end,
                'day', case when b.period = 'month' then extract(day from b.starts_at)::integer + 1 end))
        ) order by array_position('{hour,day,week,month}'::text[], b.period), b.id), '[]')
        from sluicegate.policy_limit l join sluicegate.budget_window b on b.id = l.window_id
        where l.queue_id = p.queue_id
    ))
from sluicegate.policy p where p.queue_id = p_queue_id
$$;

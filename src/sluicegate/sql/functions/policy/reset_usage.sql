-- Forgives what the current windows of a queue have been charged, all of them or one period's: used starts at 0 again, charged stays. The
-- status it answers says under forgiven how much that was. Its own verb with its own grant; locks the queue's lanes in order; wakes those
-- that wait; audited. Raises SG001, SG002, SG003 (nothing used), SG005.
-- grants: admin
create or replace function sluicegate.reset_usage(
    p_queue text, p_period text default null, p_reason text default null, p_scope text default 'endpoint:default', p_actor text default null
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set lock_timeout = '10s'
as $$
declare
    v_queue_id bigint := sluicegate.policy_queue(p_scope, p_queue, p_actor, 'reset_usage', false, p_reason);
    v_before jsonb;
    v_now timestamptz;
    v_forgiven jsonb;
begin
    if p_period is not null and p_period not in ('hour', 'day', 'week', 'month') then
        perform sluicegate.refuse('SG001', 'period', format('%L is not a period.', left(p_period, 40)), 'Use hour, day, week or month.');
    end if;
    perform sluicegate.lock_policy(v_queue_id, true);
    v_before := sluicegate.policy_status(v_queue_id);
    if v_before is null then
        perform sluicegate.refuse('SG002', 'queue', format('Queue %s has no policy.', p_queue), 'There is nothing to reset.');
    end if;
    if p_period is not null and not exists (
        select from sluicegate.policy_limit l join sluicegate.budget_window b on b.id = l.window_id
        where l.queue_id = v_queue_id and b.period = p_period
    ) then
        perform sluicegate.refuse('SG002', 'period', format('Queue %s has no limit per %s.', p_queue, p_period),
            'Leave the period out to forgive what every window was charged.');
    end if;
    v_now := sluicegate.settle(v_queue_id, sluicegate.clock());
    with gone as materialized (
        select g.window_id, g.period, b.tz, g.starts, g.used
        from sluicegate.gate_windows(v_queue_id, v_now) g join sluicegate.budget_window b on b.id = g.window_id
        where g.used > 0 and (p_period is null or g.period = p_period)
    ), added as (
        insert into sluicegate.forgiven as f (window_id, starts, queue_id, amount)
        select g.window_id, g.starts, v_queue_id, g.used from gone g
        on conflict (window_id, starts) do update set amount = f.amount + excluded.amount
    )
    select jsonb_agg(jsonb_build_object('period', g.period, 'tz', g.tz, 'starts', g.starts, 'amount', g.used) order by g.starts desc, g.window_id)
    into v_forgiven from gone g;
    if v_forgiven is null then
        perform sluicegate.refuse('SG003', 'used', format('Nothing is used in the current windows of queue %s.', p_queue),
            'There is nothing to forgive.');
    end if;
    perform sluicegate.settle(v_queue_id, v_now);
    perform sluicegate.wake_waiters(v_queue_id, v_before -> 'verdict');
    perform sluicegate.audit_policy(v_queue_id, 'reset', v_before, sluicegate.policy_status(v_queue_id), p_reason, p_actor);
    return sluicegate.policy_status(v_queue_id) || jsonb_build_object('forgiven', v_forgiven);
end
$$;

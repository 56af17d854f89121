-- The last 30 windows that have ended of each limit a queue has or had, newest first: {period, tz, starts, ends, charged, forgiven,
-- partial}; partial: the limit was taken away before the window ended, and what was claimed without it is not in charged. None where
-- they cannot be read, like the policy itself. Takes no lock.
-- grants: none
create or replace function sluicegate.past_windows(p_queue_id bigint, p_now timestamptz) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
set lock_timeout = '1s'
as $$
begin
    return (
        select coalesce(jsonb_agg(jsonb_build_object('period', b.period, 'tz', b.tz, 'starts', c.starts, 'ends', c.ends,
            'charged', c.charged, 'forgiven', c.forgiven, 'partial', c.partial) order by c.starts desc, b.id), '[]')
        from sluicegate.budget_window b
        left join sluicegate.policy_limit l on l.queue_id = p_queue_id and l.window_id = b.id
        -- The current window stands among the gates, unless its limit is gone.
        cross join lateral (
            select w.* from sluicegate.window_charges(p_queue_id, b.id, 31) w
            where w.ends <= p_now or l.window_id is null
            order by w.starts desc limit 30
        ) c
        where b.queue_id = p_queue_id
    );
exception
    when undefined_table or lock_not_available then
        return '[]'::jsonb;
end
$$;

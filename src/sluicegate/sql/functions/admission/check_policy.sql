-- Raises when a queue's policy cannot be evaluated: a zone the database no longer knows, or lanes that carry other windows than
-- the policy names. The caller fails closed. Takes no lock.
-- grants: none
create or replace function sluicegate.check_policy(p_queue_id bigint) returns void
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_windows bigint[];
begin
    select coalesce(array_agg(l.window_id order by l.window_id), '{}') into v_windows
    from sluicegate.policy_limit l join sluicegate.budget_window b on b.id = l.window_id
    where l.queue_id = p_queue_id and (timestamptz 'epoch' at time zone b.tz) is not null;
    if v_windows is distinct from (
        select a.windows from sluicegate.lane a where a.queue_id = p_queue_id and a.lane = 0 order by a.gen desc limit 1
    ) then
        raise exception using errcode = 'SG006', message = 'The policy and the lanes of the queue do not agree.';
    end if;
end
$$;

-- The windows of a queue's limits in the order in which its lanes carry them, and the places among them of shadow limits, for which a lane
-- has no share. Raises when a zone is one that the database no longer knows. Takes no lock.
-- grants: none
create or replace function sluicegate.policy_windows(p_queue_id bigint, out windows bigint[], out shadows integer[])
language plpgsql stable
set search_path = sluicegate, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    select coalesce(array_agg(l.window_id order by l.window_id), '{}'),
        coalesce(array_positions(array_agg(l.mode order by l.window_id), 'shadow'), '{}')
    into windows, shadows
    from sluicegate.policy_limit l join sluicegate.budget_window b on b.id = l.window_id
    where l.queue_id = p_queue_id and (timestamptz 'epoch' at time zone (':' || b.tz)) is not null;
end
$$;

-- What every claim needs of a queue's policy, in one statement: its lanes, whether it is opening, whether it caps what is in flight, the
-- windows of its limits in the order in which lanes carry them, and the places among them of shadow limits, for which a lane has no
-- share. Raises when it is missing, or a zone is one that the database no longer knows. Waits for no table for long.
-- grants: none
create or replace function sluicegate.policy_terms(
    p_queue_id bigint, out lanes smallint, out made smallint, out opening boolean, out capped boolean, out windows bigint[], out shadows integer[]
)
language plpgsql stable
set search_path = sluicegate, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set lock_timeout = '500ms'
as $$
begin
    select p.lanes, p.made, p.opening, p.max_in_flight is not null and p.in_flight_mode = 'enforce', t.windows, t.shadows
    into lanes, made, opening, capped, windows, shadows
    from sluicegate.policy p
    cross join lateral (
        select coalesce(array_agg(l.window_id order by l.window_id), '{}') as windows,
            coalesce(array_positions(array_agg(l.mode order by l.window_id), 'shadow'), '{}') as shadows
        from sluicegate.policy_limit l join sluicegate.budget_window b on b.id = l.window_id
        where l.queue_id = p.queue_id and (timestamptz 'epoch' at time zone (':' || b.tz)) is not null
    ) t
    where p.queue_id = p_queue_id;
    if not found then
        raise exception using errcode = 'SG006', message = 'The queue is governed, and its policy is missing.';
    end if;
end
$$;

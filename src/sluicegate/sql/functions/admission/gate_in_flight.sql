-- The in-flight limit of a policy as a gate. Use is derived: the queue's claimed jobs, less lapsed ones that nobody may take over
-- (the claim ends those first). One lapsed claim that may be taken over needs no room of its own. The time is a hint: the earliest
-- end of a live lease and the reaper's interval after it. Takes no lock.
-- grants: none
create or replace function sluicegate.gate_in_flight(
    p_policy sluicegate.policy, p_now timestamptz, out gate text, out period text, out mode text, out capacity integer, out used bigint,
    out closed boolean, out reason text, out starts timestamptz, out until timestamptz, out exact boolean
) returns setof record
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    select 'in_flight', null::text, p_policy.in_flight_mode::text, p_policy.max_in_flight, c.claimed - l.spent,
        p_policy.in_flight_mode = 'enforce'
            and (p_policy.max_in_flight = 0 or c.claimed - l.spent - (l.open > 0)::integer >= p_policy.max_in_flight),
        case when p_policy.max_in_flight = 0 then 'paused' else 'in_flight_full' end, null::timestamptz,
        case when p_policy.max_in_flight > 0 then (
            select min(j.lease_expires_at) from sluicegate.job j
            where j.queue_id = p_policy.queue_id and j.state = 'claimed' and j.lease_expires_at > p_now
        ) + interval '30 seconds' end, false
    from (
        select count(*) as claimed from sluicegate.job j where j.queue_id = p_policy.queue_id and j.state = 'claimed'
    ) c, (
        select count(*) filter (where j.attempt >= j.max_attempts or j.cancel_requested_at is not null) as spent,
            count(*) filter (where j.attempt < j.max_attempts and j.cancel_requested_at is null) as open
        from sluicegate.job j
        where j.queue_id = p_policy.queue_id and j.state = 'claimed' and j.lease_expires_at <= p_now
    ) l
    where p_policy.max_in_flight is not null;
end
$$;

-- The in-flight limit of a policy as a gate. Use is derived: the queue's claimed jobs (flight), less lapsed ones that nobody may take
-- over (the claim ends those first). One lapsed claim that may be taken over needs no room of its own. The time is a hint: the
-- earliest end of a live lease and the reaper's interval after it. Takes no lock.
-- grants: none
create or replace function sluicegate.gate_in_flight(
    p_queue_id bigint, p_now timestamptz, out gate text, out period text, out mode text, out capacity integer, out used bigint,
    out closed boolean, out reason text, out starts timestamptz, out until timestamptz, out exact boolean, out window_id bigint
) returns setof record
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off -- see admit_fast
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_policy record;
begin
    select p.max_in_flight, p.in_flight_mode, p.loose into v_policy from sluicegate.policy p where p.queue_id = p_queue_id;
    return query
    with flying as materialized (
        select j.lease_expires_at, j.attempt >= j.max_attempts or j.cancel_requested_at is not null as spent
        from sluicegate.lane_now l
        cross join lateral (
            select * from sluicegate.job j
            where j.queue_id = p_queue_id and j.lane = l.lane and j.state = 'claimed' and j.lane is not null
                and j.attempt_id >= l.low
            order by j.attempt_id
            offset 0
        ) j
        where l.queue_id = p_queue_id and v_policy.max_in_flight is not null
        union all
        select j.lease_expires_at, j.attempt >= j.max_attempts or j.cancel_requested_at is not null
        from sluicegate.job j
        where v_policy.loose and v_policy.max_in_flight is not null
            and j.queue_id = p_queue_id and j.state = 'claimed' and j.lane is null
    )
    select 'in_flight', null::text, v_policy.in_flight_mode::text, v_policy.max_in_flight, f.used,
        v_policy.in_flight_mode = 'enforce'
            and (v_policy.max_in_flight = 0 or f.used - (f.open > 0)::integer >= v_policy.max_in_flight),
        case when v_policy.max_in_flight = 0 then 'paused' else 'in_flight_full' end, null::timestamptz,
        case when v_policy.max_in_flight > 0 then f.ends + interval '30 seconds' end, false, null::bigint
    from (
        select count(*) - count(*) filter (where y.spent and y.lease_expires_at <= p_now) as used,
            count(*) filter (where not y.spent and y.lease_expires_at <= p_now) as open,
            min(y.lease_expires_at) filter (where y.lease_expires_at > p_now) as ends
        from flying y
    ) f
    where v_policy.max_in_flight is not null;
end
$$;

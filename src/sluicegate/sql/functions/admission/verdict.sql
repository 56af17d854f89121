-- THE RULE: whether a queue admits a class now. Admitted exactly when one claim of one job, made now and alone, would take the head
-- job; everybody asks here. Answers state, reason, next_eligible_at, exact, the closed gates under all and every gate under
-- gates: {gate, period, limit, used, until, exact}. Stable, so one snapshot: two would see two moments and prove nothing.
-- Locks nothing. A policy that cannot be read or evaluated is admission_unavailable, never a guess.
-- grants: none
create or replace function sluicegate.verdict(p_queue_id bigint) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '1s'
as $$
declare
    v_now timestamptz := sluicegate.clock();
    v_verdict jsonb;
begin
    if not (select q.governed from sluicegate.queue q where q.id = p_queue_id) then
        return '{"state": "admitted", "reason": null, "next_eligible_at": null, "exact": true, "all": [], "gates": []}'::jsonb;
    end if;
    with gate as (
        select g.* from sluicegate.gate_pause(p_queue_id, v_now) g
        union all
        select g.* from sluicegate.gate_windows(p_queue_id, v_now) g
        union all
        select g.* from sluicegate.gate_in_flight(p_queue_id, v_now) g
    ), shown as (
        select g.*, array_position('{paused,window_exhausted,headroom_low,in_flight_full}'::text[], g.reason) as rank,
            jsonb_build_object('gate', g.gate, 'period', g.period, 'limit', g.capacity, 'used', g.used, 'until', g.until,
                'exact', g.exact) as entry
        from gate g
    )
    select jsonb_build_object(
        'state', case when count(*) filter (where s.closed) > 0 then 'deferred' else 'admitted' end,
        'reason', (array_agg(s.reason order by s.rank) filter (where s.closed))[1],
        -- The latest of their times, unknown when one is unknown.
        'next_eligible_at', case when bool_and(s.until is not null) filter (where s.closed) then max(s.until) filter (where s.closed) end,
        'exact', coalesce(bool_and(s.exact) filter (where s.closed), true),
        'all', coalesce(jsonb_agg(s.entry order by s.rank, s.until) filter (where s.closed), '[]'),
        'gates', coalesce(jsonb_agg(s.entry || jsonb_build_object('closed', s.closed, 'mode', s.mode, 'starts', s.starts) order by s.gate, s.until), '[]')
    ) into v_verdict
    from shown s;
    perform sluicegate.check_policy(p_queue_id);
    return v_verdict;
exception
    when others then
        return sluicegate.unavailable(sqlstate, sqlerrm);
end
$$;

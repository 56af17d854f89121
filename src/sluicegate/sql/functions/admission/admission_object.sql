-- What a successful claim on a governed queue is told: the tightest window's figures in front, every window under limits. The
-- figures are the gates' own.
-- grants: none
create or replace function sluicegate.admission_object(p_queue_id bigint) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_now timestamptz := sluicegate.clock();
    v_most integer;
    v_windows record;
begin
    select p.max_in_flight into v_most from sluicegate.policy p where p.queue_id = p_queue_id;
    select jsonb_agg(e.entry order by e.until) as limits,
        (array_agg(e.entry order by e.remaining, e.until) filter (where e.mode = 'enforce'))[1] as tightest
    into v_windows
    from (
        select g.until, g.mode, r.remaining, jsonb_build_object('period', g.period, 'max_claims_per_window', g.capacity, 'used', g.used,
            'remaining', r.remaining, 'window_resets_at', g.until, 'mode', g.mode) as entry
        from sluicegate.gate_windows(p_queue_id, v_now) g, lateral (select greatest(g.capacity - g.used, 0) as remaining) r
    ) e;
    return jsonb_build_object(
        'max_in_flight', v_most,
        'in_flight', sluicegate.flight(p_queue_id),
        'max_claims_per_window', v_windows.tightest -> 'max_claims_per_window', 'used', v_windows.tightest -> 'used',
        'remaining', v_windows.tightest -> 'remaining', 'window_resets_at', v_windows.tightest -> 'window_resets_at',
        'limits', coalesce(v_windows.limits, '[]'));
end
$$;

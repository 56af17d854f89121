-- Raises when a queue's policy cannot be evaluated: its row, one of its lanes, limits or windows is missing, a lane carries other limits
-- than the policy names, or a zone is one that the database no longer knows. The caller fails closed. Takes no lock.
-- grants: none
create or replace function sluicegate.check_policy(p_queue_id bigint) returns void
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_policy sluicegate.policy;
    v_limits record;
    v_lanes record;
begin
    select p.* into v_policy from sluicegate.policy p where p.queue_id = p_queue_id;
    if not found then
        raise exception using errcode = 'SG006', message = 'The queue is governed, and its policy is missing.';
    end if;
    v_limits := sluicegate.policy_windows(p_queue_id);
    select count(*) as n, bool_and(a.windows = v_limits.windows and array_positions(a.shares, null) = v_limits.shadows
            and (a.cap is null) = (v_policy.max_in_flight is null or v_policy.in_flight_mode = 'shadow')) as agree
    into v_lanes
    from sluicegate.lane_now a where a.queue_id = p_queue_id;
    if v_lanes.n <> v_policy.made or not v_lanes.agree then
        raise exception using errcode = 'SG006', message = 'The policy and the lanes of the queue do not agree.';
    end if;
end
$$;

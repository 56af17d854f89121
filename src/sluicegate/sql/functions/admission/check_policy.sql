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
    v_policy record;
    v_lanes record;
begin
    v_policy := sluicegate.policy_terms(p_queue_id);
    select count(*) as n, bool_and(a.windows = v_policy.windows and array_positions(a.shares, null) = v_policy.shadows
            and (a.cap is not null) = v_policy.capped) as agree
    into v_lanes
    from generate_series(0, v_policy.made - 1) s(lane)
    cross join lateral (
        select * from sluicegate.lane k where k.queue_id = p_queue_id and k.lane = s.lane order by k.gen desc limit 1
    ) a;
    if v_lanes.n <> v_policy.made or not v_lanes.agree then
        raise exception using errcode = 'SG006', message = 'The policy and the lanes of the queue do not agree.';
    end if;
end
$$;

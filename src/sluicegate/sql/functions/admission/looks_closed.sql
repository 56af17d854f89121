-- A cheap, unlocked look before any job is touched: true when no lane seems to have room, so that a verdict is worth its price and
-- polls of a closed queue write nothing. It may be wrong both ways; only verdict decides.
-- grants: none
create or replace function sluicegate.looks_closed(p_queue_id bigint, p_now timestamptz) returns boolean
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set lock_timeout = '1s'
as $$
declare
    v_policy sluicegate.policy;
begin
    select p.* into strict v_policy from sluicegate.policy p where p.queue_id = p_queue_id;
    return (v_policy.paused and coalesce(v_policy.paused_until > p_now, true))
        or not exists (
            select from sluicegate.lane_now l
            where l.queue_id = p_queue_id and l.live and not exists (
                select from unnest(l.shares, l.forgiven, l.used, l.ends) as x(share, forgiven, used, ends)
                where x.share is not null and x.used >= x.share + x.forgiven and (x.ends > p_now or x.share = 0)
            )
        )
        or (v_policy.in_flight_mode = 'enforce' and v_policy.max_in_flight <= 100 and v_policy.max_in_flight <= sluicegate.flight(p_queue_id));
exception
    when others then
        return true;
end
$$;

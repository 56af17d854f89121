-- A cheap, unlocked look before any job is touched: the verdict when no lane seems to have room, so that polls of a closed queue write
-- nothing but their count, else null. It may look closed or open wrongly; only verdict decides.
-- grants: none
create or replace function sluicegate.looks_closed(p_queue_id bigint, p_now timestamptz) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_bitmapscan = off
set enable_sort = off -- see admit_fast
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set lock_timeout = '500ms'
as $$
declare
    -- Not of the table's type: to compile that, a session's first call would wait outside the block that catches it.
    v_policy record;
begin
    begin
        select p.* into strict v_policy from sluicegate.policy p where p.queue_id = p_queue_id;
        if (v_policy.paused and coalesce(v_policy.paused_until > p_now, true))
            or not exists (
                select from sluicegate.lane_now l
                where l.queue_id = p_queue_id and l.live and not exists (
                    select from unnest(l.shares, l.forgiven, l.used, l.ends) as x(share, forgiven, used, ends)
                    where x.share is not null and x.used >= x.share + x.forgiven and (x.ends > p_now or x.share = 0)
                )
                and (l.cap is null or l.cap > (
                    select count(*)
                    from (
                        select from sluicegate.job j
                        where j.queue_id = p_queue_id and j.lane = l.lane and j.state = 'claimed' and j.lane is not null
                            and j.attempt_id >= l.low
                        order by j.attempt_id
                        offset 0
                    ) f
                ))
            )
        then
            null;
        else
            return null;
        end if;
    exception
        when lock_not_available then
            return sluicegate.unavailable(sqlstate, sqlerrm);
        when others then
            null;
    end;
    return sluicegate.verdict(p_queue_id);
end
$$;

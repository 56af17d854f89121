-- Whether a governed queue is paused until p_until at least, or has used up a window that lasts until then, by an unlocked look. In doubt it
-- is not. A full in-flight limit does not count: it may end at any moment.
-- grants: none
create or replace function sluicegate.stays_closed(p_queue_id bigint, p_until timestamptz) returns boolean
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '200ms'
as $$
declare
    -- Not of the table's type: see looks_closed.
    v_policy record;
begin
    select p.* into strict v_policy from sluicegate.policy p where p.queue_id = p_queue_id;
    return (v_policy.paused and coalesce(v_policy.paused_until > p_until, true))
        or exists (select from sluicegate.lane_now l where l.queue_id = p_queue_id and l.live)
        and not exists (
            select from sluicegate.lane_now l
            where l.queue_id = p_queue_id and l.live and not exists (
                select from unnest(l.shares, l.forgiven, l.used, l.ends) as x(share, forgiven, used, ends)
                where x.share is not null and x.used >= x.share + x.forgiven and x.ends > p_until
            )
        );
exception
    when others then
        return false;
end
$$;

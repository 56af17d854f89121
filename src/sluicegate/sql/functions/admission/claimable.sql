-- Whether anything claimable is visible in the queues, unlocked: what separates "empty" from "peers hold it". Follows
-- no hint, so that "empty" is never wrong. Offset 0 keeps each look a probe: without it a plan made over small tables
-- may read a whole partial index into a hash.
-- grants: none
create or replace function sluicegate.claimable(p_queues bigint[], p_classes text[], p_now timestamptz) returns boolean
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return exists (
        select from unnest(p_queues) q
        where exists (
                select from unnest(p_classes) c
                where exists (
                        select from sluicegate.job j where j.queue_id = q and j.class = c and j.state = 'pending' offset 0
                    )
                    or exists (select from sluicegate.due_heads(q, c, p_now, 1) offset 0)
            )
            or exists (
                select from sluicegate.job j
                where j.queue_id = q and j.state = 'claimed' and j.lease_expires_at <= p_now
                    and j.attempt < j.max_attempts and j.cancel_requested_at is null
                offset 0
            )
    );
end
$$;

-- How many jobs of a queue wait to be claimed: pending, due, or lapsed with attempts left. Counts to 1,000 and then says that
-- there are more, so that asking is never a matter of the backlog. Takes no lock.
-- grants: none
create or replace function sluicegate.pending_count(p_queue_id bigint, p_now timestamptz, out pending bigint, out exact boolean)
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
begin
    select least(count(*), 1000), count(*) <= 1000 into pending, exact
    from (
        (select from sluicegate.job j where j.queue_id = p_queue_id and j.state = 'pending' limit 1001)
        union all
        (select from unnest('{alert,p1,mid,low}'::text[]) c
        cross join lateral sluicegate.due_heads(p_queue_id, c, p_now, 1001) limit 1001)
        union all
        (select from sluicegate.job j where j.queue_id = p_queue_id and j.state = 'claimed' and j.lease_expires_at <= p_now
            and j.attempt < j.max_attempts and j.cancel_requested_at is null limit 1001)
        limit 1001
    ) n;
end
$$;

-- Ends those lapsed claims of a queue that nobody may take over (attempts spent, cancelled), so that they hold no slot: at most 100, the
-- rest is left to the next call or to reap. Locks with SKIP LOCKED, so it never waits; their tokens die.
-- grants: none
create or replace function sluicegate.end_spent(p_queue_id bigint, p_now timestamptz) returns void
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_spent bigint[];
begin
    select array_agg(s.id) into v_spent
    from (
        select j.id from sluicegate.job j
        where j.queue_id = p_queue_id and j.state = 'claimed' and j.lease_expires_at <= p_now
            and j.lease_expires_at >= coalesce((
                select h.first_at from sluicegate.lapse_hint h
                where h.queue_id = p_queue_id
                    and h.looked_at between clock_timestamp() - interval '1 second' and clock_timestamp()
            ), '-infinity')
            and (j.attempt >= j.max_attempts or j.cancel_requested_at is not null)
        order by j.lease_expires_at
        limit 100
        for no key update skip locked
    ) s;
    if v_spent is not null then
        perform sluicegate.end_lapsed(v_spent, p_now);
    end if;
end
$$;

-- Ends the lapsed claims of jobs that the caller has locked: back to pending while attempts are left, else failed as a
-- dead letter, or cancelled if that was asked for. Their tokens die. Answers how many went each way.
-- grants: none
create or replace function sluicegate.end_lapsed(
    p_ids bigint[], p_now timestamptz, out requeued bigint, out dead_lettered bigint, out cancelled bigint
)
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_queues bigint[];
begin
    with lapsed as (
        select j.id, j.attempt_id, j.lease_token_hash,
            format('The lease ran out at %s without a heartbeat.',
                to_char(j.lease_expires_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')) as error,
            case
                when j.cancel_requested_at is not null then 'cancelled'
                when j.attempt < j.max_attempts then 'requeued'
                else 'dead_lettered'
            end as disposition
        from unnest(p_ids) i cross join lateral (select * from sluicegate.job j where j.id = i offset 0) j
        where j.state = 'claimed' and j.lease_expires_at <= p_now
    ), ended as (
        insert into sluicegate.attempt_end (attempt_id, job_id, ended_at, outcome, disposition, error, lease_token_hash)
        select l.attempt_id, l.id, p_now, 'reaped', l.disposition, l.error, l.lease_token_hash from lapsed l
    ), moved as (
        update sluicegate.job j
        set state = case l.disposition when 'requeued' then 'pending' when 'cancelled' then 'cancelled' else 'failed' end,
            finished_at = case when l.disposition = 'requeued' then null else p_now end,
            error = case l.disposition when 'cancelled' then coalesce(j.error, l.error) else l.error end,
            worker = null, lease_expires_at = null, lease_token_hash = null
        from lapsed l
        where j.id = l.id
        returning l.disposition, j.queue_id
    )
    select count(*) filter (where m.disposition = 'requeued'), count(*) filter (where m.disposition = 'dead_lettered'),
        count(*) filter (where m.disposition = 'cancelled'), array_agg(distinct m.queue_id)
    into requeued, dead_lettered, cancelled, v_queues
    from moved m;
    perform sluicegate.ready_below(p_ids);
    -- Each of them waits again, or has left room.
    perform sluicegate.wake_workers(v_queues);
end
$$;

-- Up to p_n jobs to claim, locked: lapsed leases with attempts left first, whatever their priority; then due jobs of the
-- classes by priority, due time, id. Locks with SKIP LOCKED only, so it never waits. Lapsed jobs that cannot be taken over
-- (attempts spent, cancelled) are ended on the way. Both looks start at hints: see lapsed_looked and ready_looked. A batch
-- is cut at 16 MiB of payload text, as jsonb can be six times its text and an answer holds 256 MiB.
-- grants: none
create or replace function sluicegate.candidates(
    p_queues bigint[], p_classes text[], p_n integer, p_now timestamptz, out ids bigint[], out lapsed integer
)
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_spent bigint[];
    v_queue bigint;
    v_ended integer := 0;
    v_entries bigint := pg_stat_get_xact_tuples_returned('sluicegate.job_lapse'::regclass);
begin
    ids := '{}';
    foreach v_queue in array coalesce(p_queues, '{}') loop
        loop
            exit when cardinality(ids) >= p_n;
            select ids || coalesce(array_agg(l.id) filter (where l.open), '{}'), array_agg(l.id) filter (where not l.open)
            into ids, v_spent
            from (
                select j.id, j.attempt < j.max_attempts and j.cancel_requested_at is null as open
                from sluicegate.job j
                where j.queue_id = v_queue and j.state = 'claimed' and j.lease_expires_at <= p_now
                    and j.lease_expires_at >= coalesce((
                        select h.first_at from sluicegate.lapse_hint h
                        where h.queue_id = v_queue
                            and h.looked_at between clock_timestamp() - interval '1 second' and clock_timestamp()
                    ), '-infinity')
                    and j.id <> all (ids)
                order by j.lease_expires_at
                limit p_n - cardinality(ids)
                for no key update skip locked
            ) l;
            exit when v_spent is null;
            perform sluicegate.end_lapsed(v_spent, p_now);
            -- The rest is left to the next call, or to reap.
            v_ended := v_ended + cardinality(v_spent);
            exit when v_ended >= 100;
        end loop;
        if cardinality(ids) >= p_n then
            -- Takeovers alone fill the batch, and what stands behind them has not been seen.
            perform sluicegate.end_spent(v_queue, p_now);
            exit;
        end if;
    end loop;
    if pg_stat_get_xact_tuples_returned('sluicegate.job_lapse'::regclass) - v_entries > 1000 + 10 * p_n then
        perform sluicegate.lapsed_looked(q, p_now) from unnest(p_queues) q;
    end if;
    lapsed := cardinality(ids);
    if lapsed < p_n and p_queues is not null then
        ids := ids || sluicegate.ready(p_queues, p_classes, p_n - cardinality(ids), p_now);
    end if;
    if cardinality(ids) > 16 and exists (
        select from sluicegate.job j where j.id = any (ids) and pg_column_size(j.payload) > 500
    ) then
        select array_agg(c.id order by c.ord) into ids
        from (
            select i.id, i.ord, sum(
                -- Compressed, a hundredth of its text at the least: a small one cannot hide a large text.
                case when pg_column_size(j.payload) > 500 then octet_length(j.payload::text) else 500 end
            ) over (order by i.ord) as bytes
            from unnest(ids) with ordinality as i(id, ord)
            cross join lateral (select * from sluicegate.job j where j.id = i.id offset 0) j
        ) c
        where c.bytes <= 16777216;
    end if;
end
$$;

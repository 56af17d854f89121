-- What a governed queue has in flight: derived from the jobs, lane by lane from each one's low mark, and those from before the policy.
-- One statement, so one moment. Takes no lock.
-- grants: none
create or replace function sluicegate.flight(p_queue_id bigint) returns bigint
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off -- see admit_fast
set plan_cache_mode = force_generic_plan
as $$
begin
    return (
        select (
                select coalesce(sum(c.n), 0)
                from sluicegate.lane_now l
                cross join lateral (
                    select count(*) as n
                    from (
                        select from sluicegate.job j
                        where j.queue_id = p_queue_id and j.lane = l.lane and j.state = 'claimed' and j.lane is not null
                            and j.attempt_id >= l.low
                        order by j.attempt_id
                        offset 0
                    ) f
                ) c
                where l.queue_id = p_queue_id
            ) + case when p.loose then (
                select count(*) from sluicegate.job j where j.queue_id = p_queue_id and j.state = 'claimed' and j.lane is null
            ) else 0 end
        from sluicegate.policy p
        where p.queue_id = p_queue_id
    );
end
$$;

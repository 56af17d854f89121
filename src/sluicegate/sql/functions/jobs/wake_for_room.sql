-- Wakes the workers of queues whose in-flight limit got room that the same transaction did not take again: p_ended is the queue of each
-- job that ended in it, p_claimed of each that it claimed. With p_waiting only where something waits for it, which is right where the commit
-- follows at once. A policy that cannot be read changes nothing about the finish: then they are woken.
-- grants: none
create or replace function sluicegate.wake_for_room(p_ended bigint[], p_claimed bigint[], p_waiting boolean) returns void
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '200ms'
as $$
declare
    v_ids bigint[];
begin
    select array_agg(f.id) into v_ids
    from (
        select x.id from (select unnest(p_ended), 1 union all select unnest(p_claimed), -1) x(id, n)
        group by x.id having sum(x.n) > 0
    ) f
    cross join lateral (select from sluicegate.queue q where q.id = f.id and q.governed offset 0) q;
    if v_ids is null then
        return;
    end if;
    begin
        v_ids := array(
            select p.queue_id from unnest(v_ids) i cross join lateral (
                select k.* from sluicegate.policy k where k.queue_id = i offset 0
            ) p
            where p.max_in_flight > 0 and p.in_flight_mode = 'enforce'
                and (not p_waiting or sluicegate.claimable(array[p.queue_id], '{mid}', sluicegate.clock()))
        );
    exception
        when others then
            null;
    end;
    perform sluicegate.wake_workers(v_ids);
end
$$;

-- Locks all lanes of a queue in order, waiting; the caller holds none. Lanes are added under the lock of the first, so how many there
-- are is read after it.
-- grants: none
create or replace function sluicegate.lock_lanes(p_queue_id bigint) returns void
language plpgsql
set search_path = sluicegate, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
    v_made integer := 1;
    v_at integer := 0;
begin
    while v_at < v_made loop
        perform 1 from sluicegate.lane l
        where l.queue_id = p_queue_id and l.lane = v_at and l.gen >= (
            select k.gen from sluicegate.lane k where k.queue_id = p_queue_id and k.lane = v_at order by k.gen desc limit 1
        )
        for no key update;
        if v_at = 0 then
            -- Without a policy, lanes of an earlier one.
            v_made := coalesce((select p.made from sluicegate.policy p where p.queue_id = p_queue_id),
                (select max(l.lane) + 1 from sluicegate.lane l where l.queue_id = p_queue_id), 0);
        end if;
        v_at := v_at + 1;
    end loop;
    perform set_config('sluicegate.holds_lanes', pg_current_xact_id()::text, true);
end
$$;

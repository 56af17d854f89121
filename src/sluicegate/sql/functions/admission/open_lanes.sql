-- Opens the lanes of a queue's first policy once no claim that began before it is still in the air: every transaction that held a
-- RowShareLock on sluicegate.job at a moment after the policy was committed has ended. Only then are the windows seeded from
-- the attempts, so the seed is complete. Locks all lanes in order. False while it must wait.
-- grants: none
create or replace function sluicegate.open_lanes(p_queue_id bigint) returns boolean
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_policy sluicegate.policy;
    v_holders text[];
    v_now timestamptz;
begin
    perform 1 from sluicegate.lane l where l.queue_id = p_queue_id order by l.lane for no key update;
    select p.* into strict v_policy from sluicegate.policy p where p.queue_id = p_queue_id;
    if not v_policy.opening then
        return true;
    end if;
    v_holders := array(
        select k.virtualtransaction
        from pg_locks k
        where k.locktype = 'relation' and k.relation = 'sluicegate.job'::regclass and k.mode = 'RowShareLock'
            and k.database = (select d.oid from pg_database d where d.datname = current_database())
            and k.pid <> pg_backend_pid()
            and (v_policy.awaited is null or k.virtualtransaction = any (v_policy.awaited))
    );
    if cardinality(v_holders) > 0 then
        update sluicegate.policy p set awaited = v_holders where p.queue_id = p_queue_id;
        return false;
    end if;
    v_now := sluicegate.clock();
    update sluicegate.policy p set opening = false, awaited = null where p.queue_id = p_queue_id;
    perform sluicegate.settle(p_queue_id, v_now);
    perform sluicegate.seed_windows(p_queue_id,
        array(select l.window_id from sluicegate.policy_limit l where l.queue_id = p_queue_id), v_now);
    perform sluicegate.settle(p_queue_id, v_now);
    return true;
end
$$;

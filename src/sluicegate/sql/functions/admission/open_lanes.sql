-- Opens the lanes of a queue's first policy once no claim that began before it is still in the air: every transaction that held a
-- RowShareLock on sluicegate.job at a moment after the policy was committed has ended. Only then are the windows seeded from
-- the attempts, so the seed is complete. Locks all lanes in order. False while it must wait, also in the transaction that
-- makes the policy: until that commits, others read governed = false.
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
    perform sluicegate.lock_lanes(p_queue_id);
    select p.* into strict v_policy from sluicegate.policy p where p.queue_id = p_queue_id;
    if not v_policy.opening then
        return true;
    end if;
    if v_policy.made_by = pg_current_xact_id() then
        return false;
    end if;
    v_holders := array(
        select a.virtualtransaction from sluicegate.claims_in_the_air(v_policy.awaited) a order by a.virtualtransaction);
    if cardinality(v_holders) > 0 then
        update sluicegate.policy p set awaited = v_holders where p.queue_id = p_queue_id and p.awaited is distinct from v_holders;
        return false;
    end if;
    -- Under a clock that was set back, windows go on where the last attempt was charged.
    v_now := greatest(sluicegate.clock(), (select max(a.opened_at) from sluicegate.attempt a where a.queue_id = p_queue_id));
    update sluicegate.policy p set opening = false, awaited = null where p.queue_id = p_queue_id;
    v_now := sluicegate.settle(p_queue_id, v_now);
    perform sluicegate.seed_windows(p_queue_id,
        array(select l.window_id from sluicegate.policy_limit l where l.queue_id = p_queue_id), v_now);
    perform sluicegate.settle(p_queue_id, v_now);
    return true;
end
$$;

-- Retention of what budgets leave behind, p_limit rows of each kind: use of windows that ended over 400 days ago with what was forgiven in
-- them, refusals and audit of over a year, and windows that no policy, lane or use names any more. What is current is never touched:
-- no window is longer than a month. Locks with SKIP LOCKED, and last the editors' turn of queues, without waiting for one.
-- grants: none
create or replace function sluicegate.prune_budgets(
    p_now timestamptz, p_limit integer, out usage bigint, out forgiven bigint, out refusals bigint, out audit bigint, out windows bigint
)
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_queues bigint[];
begin
    delete from sluicegate.usage u where u.ctid = any (array(
        select o.ctid from sluicegate.usage o where o.ends < p_now - interval '400 days'
        order by o.ends limit p_limit for update skip locked));
    get diagnostics usage = row_count;
    delete from sluicegate.forgiven f where f.ctid = any (array(
        select o.ctid from sluicegate.forgiven o
        where o.starts < p_now - interval '400 days'
            and not exists (select from sluicegate.usage u where u.window_id = o.window_id and u.starts = o.starts)
            -- An idle lane archives a window that has ended when it is next charged.
            and not exists (select from sluicegate.lane l where l.queue_id = o.queue_id and o.starts = any (l.starts))
        limit p_limit for update of o skip locked));
    get diagnostics forgiven = row_count;
    delete from sluicegate.refusal r where r.ctid = any (array(
        select o.ctid from sluicegate.refusal o where o.minute < p_now - interval '1 year'
        order by o.minute limit p_limit for update skip locked));
    get diagnostics refusals = row_count;
    delete from sluicegate.policy_audit a where a.ctid = any (array(
        select o.ctid from sluicegate.policy_audit o where o.at < p_now - interval '1 year'
        order by o.at limit p_limit for update skip locked));
    get diagnostics audit = row_count;

    -- Whoever changes a policy may be naming such a window again: his turn is taken, or his queue left for another time.
    v_queues := array(
        select q.id from sluicegate.queue q
        where q.id in (
            select b.queue_id from sluicegate.budget_window b
            where not exists (select from sluicegate.policy_limit l where l.queue_id = b.queue_id and l.window_id = b.id)
        )
        for no key update of q skip locked);
    delete from sluicegate.budget_window b where b.id = any (array(
        select o.id from sluicegate.budget_window o
        where o.queue_id = any (v_queues)
            and not exists (select from sluicegate.policy_limit l where l.queue_id = o.queue_id and l.window_id = o.id)
            and not exists (select from sluicegate.lane a where a.queue_id = o.queue_id and o.id = any (a.windows))
            and not exists (select from sluicegate.usage u where u.window_id = o.id)
            and not exists (select from sluicegate.forgiven f where f.window_id = o.id)
        limit p_limit));
    get diagnostics windows = row_count;
end
$$;

-- The one writer of policies: stores canonical fields (null takes the policy away), deals the lanes' shares anew and audits. Locks the
-- queue's lanes in order; wakes those that wait. A first policy commits governed with closed lanes; open_lanes opens them when the
-- claims that were in the air have ended. Answers the status with what is already used. Raises SG002, SG003.
-- grants: none
create or replace function sluicegate.write_policy(
    p_queue_id bigint, p_fields jsonb, p_verb text, p_reason text, p_revision bigint, p_actor text
) returns jsonb
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_before jsonb;
    v_verdict jsonb;
    v_old bigint[];
    v_new bigint[];
    v_lanes smallint;
    v_made smallint;
    v_now timestamptz;
    v_opening boolean;
begin
    perform sluicegate.lock_policy(p_queue_id);
    -- Under a clock that was set back, windows go on where the last attempt was charged.
    v_now := greatest(sluicegate.clock(), (select max(a.opened_at) from sluicegate.attempt a where a.queue_id = p_queue_id));
    v_before := sluicegate.policy_document(p_queue_id);
    v_verdict := case when (select q.governed from sluicegate.queue q where q.id = p_queue_id) then sluicegate.verdict(p_queue_id) end;
    if p_fields is null and v_verdict is null then
        perform sluicegate.refuse('SG002', 'queue', format('Queue %s has no policy.',
            (select q.name from sluicegate.queue q where q.id = p_queue_id)), 'There is nothing to take away.');
    end if;
    if p_revision is not null and p_revision <> coalesce((v_before ->> 'revision')::bigint, 0) then
        perform sluicegate.refuse('SG003', 'revision', format('The policy is at revision %s, not %s: someone else has changed it.',
            coalesce((v_before ->> 'revision')::bigint, 0), p_revision), 'Read it again and repeat the change.');
    end if;
    if (p_fields ->> 'paused_until')::timestamptz <= sluicegate.clock() then
        perform sluicegate.refuse('SG001', 'paused_until', 'The end of a pause lies in the future.',
            'Leave it out to pause until resumed.');
    end if;
    v_old := array(select l.window_id from sluicegate.policy_limit l where l.queue_id = p_queue_id);
    if v_verdict ->> 'reason' = 'admission_unavailable' and v_verdict ->> 'fault_code' is distinct from '55P03' then
        -- What the lanes of a policy that could not be evaluated say is not to be trusted: the attempts are counted anew for the windows
        -- that are open. Those that have ended are all there is of them.
        insert into sluicegate.usage (window_id, starts, lane, queue_id, ends, used)
        select x.window_id, x.starts, l.lane, l.queue_id, x.ends, max(x.used)
        from sluicegate.lane l
        cross join unnest(l.windows, l.starts, l.ends, l.used) as x(window_id, starts, ends, used)
        where l.queue_id = p_queue_id and x.ends <= v_now and x.used > 0 and x.starts is not null and x.window_id is not null
        group by x.window_id, x.starts, l.lane, l.queue_id, x.ends
        on conflict (window_id, starts, lane) do nothing;
        update sluicegate.lane l
        set windows = '{}', shares = '{}', used = '{}', forgiven = '{}', starts = '{}', ends = '{}', low = 0
        where l.queue_id = p_queue_id;
        v_old := '{}';
    end if;

    if p_fields is null then
        delete from sluicegate.policy_limit l where l.queue_id = p_queue_id;
        update sluicegate.lane l
        set (live, is_open, windows, shares, used, forgiven, starts, ends) = (
            select false, false, a.windows, a.shares, a.used, a.forgiven, a.starts, a.ends
            from sluicegate.lane_align(l, '{}', '{}', '{}', v_now) a)
        where l.queue_id = p_queue_id;
        delete from sluicegate.policy p where p.queue_id = p_queue_id;
        update sluicegate.queue q
        set governed = false, policy_revision = coalesce((v_before ->> 'revision')::bigint, q.policy_revision)
        where q.id = p_queue_id;
        perform sluicegate.audit_policy(p_queue_id, p_verb, v_before, null, p_reason, p_actor);
        perform sluicegate.wake_waiters(p_queue_id, v_verdict);
        return jsonb_build_object('queue', (select q.name from sluicegate.queue q where q.id = p_queue_id), 'status', 'ungoverned');
    end if;

    insert into sluicegate.budget_window (queue_id, period, tz, starts_at, origin)
    select p_queue_id, x.period, x.tz, x.starts_at, x.origin
    from jsonb_to_recordset(p_fields -> 'limits') as x(period text, tz text, starts_at interval, origin timestamptz)
    on conflict (queue_id, period, tz, starts_at) do nothing;
    delete from sluicegate.policy_limit l where l.queue_id = p_queue_id;
    insert into sluicegate.policy_limit (queue_id, window_id, max_claims, mode)
    select p_queue_id, b.id, x.max_claims, x.mode
    from jsonb_to_recordset(p_fields -> 'limits') as x(period text, tz text, starts_at interval, max_claims integer, mode text)
    join sluicegate.budget_window b on b.queue_id = p_queue_id and b.period = x.period and b.tz = x.tz and b.starts_at = x.starts_at;
    v_new := array(select l.window_id from sluicegate.policy_limit l where l.queue_id = p_queue_id);

    -- As many lanes as the smallest limit can fill with a few claims each, 1 where it is small (decision 0007).
    v_lanes := coalesce((p_fields ->> 'lanes')::smallint, greatest(1, least(16, (
        select min(n) / 32 from (
            select (p_fields ->> 'max_in_flight')::integer as n where p_fields ->> 'in_flight_mode' = 'enforce'
            union all
            select (e ->> 'max_claims')::integer from jsonb_array_elements(p_fields -> 'limits') e where e ->> 'mode' = 'enforce'
        ) s
    )))::smallint);
    v_made := greatest(v_lanes, (select max(l.lane) + 1 from sluicegate.lane l where l.queue_id = p_queue_id),
        (select p.made from sluicegate.policy p where p.queue_id = p_queue_id));
    insert into sluicegate.policy as p (queue_id, max_in_flight, in_flight_mode, paused, paused_reason, paused_until, lanes, lanes_wished,
        made, made_by, created_at, updated_at, revision)
    values (p_queue_id, (p_fields ->> 'max_in_flight')::integer, p_fields ->> 'in_flight_mode', (p_fields ->> 'paused')::boolean,
        p_fields ->> 'paused_reason', (p_fields ->> 'paused_until')::timestamptz, v_lanes, (p_fields ->> 'lanes')::smallint,
        v_made, pg_current_xact_id(), v_now, v_now,
        -- After an earlier policy its revisions go on: an editor of that one is refused.
        1 + (select q.policy_revision from sluicegate.queue q where q.id = p_queue_id))
    on conflict (queue_id) do update
    set max_in_flight = excluded.max_in_flight, in_flight_mode = excluded.in_flight_mode, paused = excluded.paused,
        paused_reason = excluded.paused_reason, paused_until = excluded.paused_until, lanes = excluded.lanes,
        lanes_wished = excluded.lanes_wished, made = excluded.made, revision = p.revision + 1, updated_at = excluded.updated_at
    returning p.opening into v_opening;
    update sluicegate.queue q set governed = true where q.id = p_queue_id and not q.governed;
    insert into sluicegate.lane (queue_id, lane, live, is_open, windows, shares, used, forgiven, starts, ends)
    select p_queue_id, n, false, false, '{}', '{}', '{}', '{}', '{}', '{}' from generate_series(0, v_made - 1) n
    where not exists (select from sluicegate.lane l where l.queue_id = p_queue_id and l.lane = n);
    v_now := sluicegate.settle(p_queue_id, v_now);
    if not v_opening then
        perform sluicegate.seed_windows(p_queue_id, array(select n from unnest(v_new) n where n <> all (v_old)), v_now);
        perform sluicegate.settle(p_queue_id, v_now);
    end if;
    perform sluicegate.audit_policy(p_queue_id, p_verb, v_before, sluicegate.policy_document(p_queue_id), p_reason, p_actor);
    perform sluicegate.wake_waiters(p_queue_id, v_verdict);
    return sluicegate.policy_status(p_queue_id);
end
$$;

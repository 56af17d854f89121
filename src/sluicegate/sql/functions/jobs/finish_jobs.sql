-- Completes, fails, releases or cancels jobs by their lease tokens, each idempotent by its token. Locks the jobs in id order and
-- waits for them. A token that is not the current one is answered by finish_replay. Answers in input order.
-- p_wake: workers are told of the room that it leaves; else that is left to the caller, who gets the queue and the lane of each job that it
-- ended. Raises SG001 for a malformed item, SG002 for an unknown scope.
-- grants: none
create or replace function sluicegate.finish_jobs(
    p_items jsonb, p_wake boolean default true, out answer json, out queues bigint[], out lanes smallint[]
)
language plpgsql
set search_path = sluicegate, pg_temp
set jit = off
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_plain record := sluicegate.complete_all(p_items);
    v_ids bigint[];
    v_scopes text[];
    v_scope_ids bigint[];
    v_now timestamptz;
    v_requeued bigint[];
    v_again bigint[];
    v_refused bigint;
begin
    if v_plain.answer is not null then
        answer := v_plain.answer;
        queues := v_plain.queues;
        lanes := v_plain.lanes;
        if p_wake then
            perform sluicegate.wake_for_room(queues, '{}', false);
        end if;
        return;
    end if;

    perform sluicegate.check_finish(p_items);
    select array_agg(distinct (e ->> 'job_id')::bigint), array_agg(distinct e ->> 'scope') into v_ids, v_scopes
    from jsonb_array_elements(p_items) e;
    v_scope_ids := array(select sluicegate.scope_id(s) from unnest(v_scopes) s);
    -- Another scope's job is neither locked nor waited for.
    perform 1
    from sluicegate.job j
    where j.id = any (v_ids) and j.scope_id = any (v_scope_ids) and (cardinality(v_scope_ids) = 1 or exists (
        select from jsonb_array_elements(p_items) e
        where (e ->> 'job_id')::bigint = j.id and v_scope_ids[array_position(v_scopes, e ->> 'scope')] = j.scope_id
    ))
    order by j.id for no key update;
    v_now := sluicegate.clock();

    with item as materialized (
        select i.ord, i.job_id, sha256(convert_to(coalesce(i.lease_token, ''), 'UTF8')) as token_hash, i.outcome, i.result,
            coalesce(i.error, i.reason) as error, i.summary, coalesce(i.retry, true) as retry, i.not_before,
            round(i.retry_in_seconds, 6)::double precision as retry_in_seconds, coalesce(i.started, true) as started, i.account,
            v_scope_ids[array_position(v_scopes, i.scope)] as scope_id
        from rows from (jsonb_to_recordset(p_items) as (
                job_id bigint, lease_token text, outcome text, result jsonb, error text, reason text, summary text,
                retry_in_seconds numeric, retry boolean, not_before timestamptz, started boolean, account text, scope text
            )) with ordinality as i(
                job_id, lease_token, outcome, result, error, reason, summary, retry_in_seconds, retry, not_before, started,
                account, scope, ord
            )
    ), held as materialized (
        select distinct on (i.job_id) i.*, j.attempt_id,
            -- What never ran, or was refused by a provider, has not been an attempt. A claim at the cap did not raise the counter, so
            -- it has nothing to give back.
            j.attempt - ((not i.started or i.account is not null) and i.outcome = 'released' and j.attempt_counted is not false)::integer
                as attempt,
            j.max_attempts, j.cancel_requested_at is not null as cancelled,
            case when i.outcome = 'failed' then v_now + make_interval(secs => coalesce(
                i.retry_in_seconds,
                sluicegate.backoff_seconds(j.backoff, j.attempt) * (0.9 + 0.2 * random())
            )) end as retry_at
        from item i cross join lateral (select * from sluicegate.job j where j.id = i.job_id offset 0) j
        where j.state = 'claimed' and j.lease_token_hash = i.token_hash and j.scope_id = i.scope_id
        order by i.job_id, i.ord
    ), decided as materialized (
        select h.*, case
                when h.outcome = 'completed' then 'done'
                when h.cancelled or h.outcome = 'cancelled' then 'cancelled'
                when h.outcome = 'failed' and (h.attempt >= h.max_attempts or not h.retry) then 'dead_lettered'
                when h.outcome = 'failed' then 'retry_scheduled'
                else 'requeued'
            end as disposition,
            case when h.outcome = 'failed' then h.retry_at when h.not_before > v_now then h.not_before end as due
        from held h
    ), ended as (
        insert into sluicegate.attempt_end
            (attempt_id, job_id, ended_at, outcome, disposition, started, account, error, summary, lease_token_hash)
        select d.attempt_id, d.job_id, v_now, case d.disposition when 'cancelled' then 'cancelled' else d.outcome end, d.disposition,
            d.started, d.account, d.error, d.summary, d.token_hash
        from decided d
    ), moved as (
        update sluicegate.job j
        set state = case d.disposition
                when 'done' then 'done'
                when 'cancelled' then 'cancelled'
                when 'dead_lettered' then 'failed'
                else case when d.due > v_now then 'scheduled' else 'pending' end
            end,
            run_at = case when d.disposition in ('retry_scheduled', 'requeued') then coalesce(d.due, j.run_at) else j.run_at end,
            finished_at = case when d.disposition in ('retry_scheduled', 'requeued') then null else v_now end,
            attempt = d.attempt, result = d.result,
            error = case d.disposition when 'done' then null when 'cancelled' then coalesce(j.error, d.error) else d.error end,
            cancel_requested_at = case d.disposition when 'done' then null else j.cancel_requested_at end,
            worker = null, lease_expires_at = null, lease_token_hash = null
        from decided d
        where j.id = d.job_id
        returning d.ord, j.id, j.queue_id, j.lane, j.state, j.run_at, j.attempt, j.max_attempts
    )
    select
        array_agg(m.id) filter (where m.state = 'pending'), array_agg(distinct m.queue_id) filter (where m.state = 'pending'),
        array_agg(m.queue_id) filter (where m.id is not null), array_agg(m.lane) filter (where m.id is not null),
        count(*) filter (where m.id is null),
        json_agg(case
            when m.id is not null then json_build_object(
                'job_id', m.id, 'status', 'ok', 'replayed', false, 'state', m.state, 'dead_letter', m.state = 'failed',
                'run_at', m.run_at, 'attempt', m.attempt, 'max_attempts', m.max_attempts, 'message', null)
            -- Answered below, under the new state of the jobs.
            else json_build_array(i.job_id, i.scope_id, encode(i.token_hash, 'hex'), i.outcome)
        end order by i.ord)
    into v_requeued, v_again, queues, lanes, v_refused, answer
    from item i left join moved m on m.ord = i.ord;

    if v_requeued is not null then
        perform sluicegate.ready_below(v_requeued);
        perform sluicegate.wake_workers(v_again);
    end if;
    if p_wake then
        perform sluicegate.wake_for_room(queues, '{}', false);
    end if;
    if v_refused > 0 then
        select json_agg(case
                when json_typeof(a.e) = 'array' then sluicegate.finish_replay(
                    (a.e ->> 0)::bigint, (a.e ->> 1)::bigint, decode(a.e ->> 2, 'hex'), a.e ->> 3)::json
                else a.e
            end order by a.ord)
        into answer
        from json_array_elements(answer) with ordinality as a(e, ord);
    end if;
end
$$;

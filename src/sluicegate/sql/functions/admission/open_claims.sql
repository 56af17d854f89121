-- Claims jobs that the caller has locked, and charged where governed: job, attempt and lease in one statement, with a token each, made from
-- one secret of the call. p_at and p_lanes are each job's decision instant and lane (null without a policy); with p_lapsed there may be lapsed
-- claims among them, whose attempts end here. Answers the claims, their attempts and queues in the order of p_ids.
-- grants: none
create or replace function sluicegate.open_claims(
    p_ids bigint[], p_at timestamptz[], p_lanes smallint[], p_lapsed boolean, p_lease_seconds integer, p_worker text,
    out claims json, out attempts bigint[], out queues bigint[]
)
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_secret text := gen_random_uuid()::text || gen_random_uuid()::text;
    v_tokens text[];
    v_governed bigint[];
    v_now timestamptz := sluicegate.clock();
begin
    if p_lapsed then
        insert into sluicegate.attempt_end (attempt_id, job_id, ended_at, outcome, disposition, error, lease_token_hash)
        select j.attempt_id, j.id, i.at, 'lease_expired', 'requeued',
            format('The lease ran out at %s without a heartbeat.', to_char(j.lease_expires_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')),
            j.lease_token_hash
        from unnest(p_ids, p_at) i(id, at) cross join lateral (select * from sluicegate.job j where j.id = i.id offset 0) j
        where j.state = 'claimed';
    end if;

    with picked as materialized (
        select i.id, i.at, i.lane, i.ord, encode(sha256(convert_to(v_secret || i.id, 'UTF8')), 'hex') as token
        from unnest(p_ids, p_at, p_lanes) with ordinality as i(id, at, lane, ord)
    ), taken as (
        update sluicegate.job j
        set state = 'claimed', attempt = least(j.attempt + 1, j.max_attempts), attempt_counted = j.attempt < j.max_attempts,
            attempts_total = j.attempts_total + 1, lane = p.lane,
            attempt_id = nextval('sluicegate.attempt_id_seq'), worker = p_worker, lease_seconds = p_lease_seconds,
            -- A claim charged to a window ahead of a clock that was set back holds no longer for it.
            lease_expires_at = least(p.at, v_now) + make_interval(secs => p_lease_seconds),
            lease_token_hash = sha256(convert_to(p.token, 'UTF8')), claimed_at = p.at
        from picked p
        where j.id = p.id
        returning j.id, j.queue_id, j.attempt_id, j.attempts_total, j.attempt, j.lane, p.at, p.ord, p.token
    ), opened as (
        insert into sluicegate.attempt (id, job_id, queue_id, seq, attempt, opened_at, worker)
        select t.attempt_id, t.id, t.queue_id, t.attempts_total, t.attempt, t.at, p_worker from taken t
    )
    -- Each in an order of its own: for a distinct one beside them all rows may be sorted anew.
    select array_agg(t.token order by t.ord), array_agg(t.attempt_id order by t.ord), array_agg(t.queue_id order by t.ord),
        array_agg(distinct t.queue_id) filter (where t.lane is not null)
    into v_tokens, attempts, queues, v_governed
    from taken t;
    claims := sluicegate.claim_objects(p_ids, v_tokens, case when v_governed is not null then (
        select jsonb_object_agg(g::text, sluicegate.admission_object(g)) from unnest(v_governed) g
    ) end);
end
$$;

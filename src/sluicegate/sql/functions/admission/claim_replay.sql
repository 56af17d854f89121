-- Answers a repeated claim: the claims it opened that are still open, with new tokens and a full lease (the old tokens
-- die), and under gone those that have ended. Locks those jobs in id order. Opens nothing.
-- grants: none
create or replace function sluicegate.claim_replay(p_kept jsonb, p_lease_seconds integer) returns json
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_ids bigint[] := array(select (k ->> 'job_id')::bigint from jsonb_array_elements(p_kept) k);
    v_attempts bigint[] := array(select (k ->> 'attempt_id')::bigint from jsonb_array_elements(p_kept) k);
    v_open bigint[];
    v_tokens text[];
    v_admissions jsonb;
    v_now timestamptz;
begin
    perform 1 from sluicegate.job j where j.id = any (v_ids) order by j.id for no key update;
    v_now := sluicegate.clock();
    with held as materialized (
        select i.id, i.ord, replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '') as token
        from unnest(v_ids, v_attempts) with ordinality as i(id, attempt_id, ord)
        cross join lateral (select * from sluicegate.job j where j.id = i.id offset 0) j
        where j.state = 'claimed' and j.attempt_id = i.attempt_id
    ), renewed as (
        update sluicegate.job j
        set lease_token_hash = sha256(convert_to(h.token, 'UTF8')),
            lease_expires_at = greatest(j.lease_expires_at, v_now + make_interval(secs => p_lease_seconds))
        from held h
        where j.id = h.id
        returning j.id, h.ord, h.token
    )
    select coalesce(array_agg(r.id order by r.ord), '{}'), array_agg(r.token order by r.ord) into v_open, v_tokens from renewed r;
    begin
        select jsonb_object_agg(g.queue_id::text, sluicegate.admission_object(g.queue_id)) into v_admissions
        from (
            select distinct j.queue_id
            from unnest(v_open) i
            cross join lateral (select * from sluicegate.job j where j.id = i offset 0) j
            join sluicegate.queue q on q.id = j.queue_id
            where j.lane is not null and q.governed
        ) g;
    exception
        when others then
            -- The claims are the caller's, whatever has befallen the policy since.
            v_admissions := null;
    end;
    return json_build_object(
        'claims', sluicegate.claim_objects(v_open, v_tokens, v_admissions), 'deferred', '[]'::json, 'empty', cardinality(v_ids) = 0,
        'gone', (
            select coalesce(jsonb_agg(jsonb_build_object('job_id', i.id, 'state', coalesce(j.state, 'deleted')) order by i.ord), '[]')
            from unnest(v_ids) with ordinality as i(id, ord)
            left join lateral (select k.state from sluicegate.job k where k.id = i.id offset 0) j on true
            where i.id <> all (v_open)
        ),
        'replayed', true, 'error', null, 'held', '[]'::json);
end
$$;

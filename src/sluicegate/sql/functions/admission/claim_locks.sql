-- Takes, before a claim with several parts does anything, every lock it may have to wait for: the request ids in order,
-- then, by id, the jobs that a repeated request will renew together with those to be finished. Answers which requests
-- (from 1) could not be locked in time and must not run; raises nothing, because the finishes have to stand.
-- grants: none
create or replace function sluicegate.claim_locks(p_requests jsonb, p_finished jsonb) returns integer[]
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
declare
    v_request record;
    v_scopes bigint[] := '{}';
    v_ids text[] := '{}';
    v_ords integer[] := '{}';
    v_late integer[] := '{}';
    v_jobs bigint[];
    v_again integer[];
begin
    for v_request in
        select r ->> 'scope' as scope, r ->> 'request_id' as request_id, ord::integer as ord
        from jsonb_array_elements(p_requests) with ordinality as x(r, ord)
        where r ->> 'request_id' is not null
    loop
        begin
            v_scopes := v_scopes || sluicegate.scope_id(v_request.scope);
            v_ids := v_ids || v_request.request_id;
            v_ords := v_ords || v_request.ord;
        exception
            -- Its own part will say so.
            when sqlstate 'SG001' or sqlstate 'SG002' then
                null;
        end;
    end loop;
    for v_request in
        select sluicegate.request_key(u.scope_id, u.request_id) as key, array_agg(u.ord) as ords
        from unnest(v_scopes, v_ids, v_ords) as u(scope_id, request_id, ord)
        group by 1 order by 1
    loop
        begin
            -- One that is late is waited for; with a second one the finishes would wait too long.
            if v_late = '{}' then
                perform pg_advisory_xact_lock(v_request.key);
            elsif not pg_try_advisory_xact_lock(v_request.key) then
                v_late := v_late || v_request.ords;
            end if;
        exception
            when lock_not_available then
                v_late := v_late || v_request.ords;
        end;
    end loop;

    select array_agg(distinct (k ->> 'job_id')::bigint), array_agg(distinct u.ord) into v_jobs, v_again
    from unnest(v_scopes, v_ids, v_ords) as u(scope_id, request_id, ord)
    join sluicegate.request r on r.scope_id = u.scope_id and r.request_id = u.request_id and r.verb = 'claim'
    cross join lateral jsonb_array_elements(r.answer) k
    where u.ord <> all (v_late);
    if v_again is not null then
        v_jobs := v_jobs || array(
            select (e ->> 'job_id')::bigint from jsonb_array_elements(p_finished) e where e ->> 'job_id' ~ '^[0-9]{1,18}$');
        begin
            perform 1
            from sluicegate.job j
            where j.id = any (v_jobs) and j.scope_id = any (v_scopes)
            order by j.id
            for no key update;
        exception
            when lock_not_available then
                v_late := v_late || v_again;
        end;
    end if;
    return v_late;
end
$$;

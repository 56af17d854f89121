-- One request of a claim: takes up to n jobs of its queues, or says that nothing is claimable (empty), or that
-- peers hold what is (neither claims nor empty: ask again). A repeated request_id opens nothing more.
-- Locks candidates with SKIP LOCKED. Raises SG001, SG002, SG003.
-- grants: none
create or replace function sluicegate.claim_request(p_request jsonb, p_worker text) returns json
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_request ->> 'scope');
    v_request_id text := p_request ->> 'request_id';
    v_n integer;
    v_lease integer;
    v_now timestamptz;
    v_queues bigint[];
    v_ids bigint[];
    v_claims json := '[]';
    v_kept jsonb;
    v_empty boolean := false;
    v_field text;
begin
    if jsonb_typeof(p_request) <> 'object' or p_request - '{scope,queues,n,lease_seconds,request_id}'::text[] <> '{}' then
        if jsonb_typeof(p_request) = 'object' then
            select min(k) into v_field from jsonb_object_keys(p_request) k
            where k <> all ('{scope,queues,n,lease_seconds,request_id}');
        end if;
        perform sluicegate.refuse('SG001', coalesce(v_field, 'requests'), format('%s is not a field of a claim.',
            coalesce(v_field, left(p_request::text, 40))), 'A request has scope, queues, n, lease_seconds and request_id.');
    end if;
    v_n := sluicegate.whole_number(p_request -> 'n', 'n', 1, 1000, 1);
    v_lease := sluicegate.lease_seconds(p_request -> 'lease_seconds', v_scope_id);
    perform sluicegate.check_worker(p_worker);
    if jsonb_typeof(p_request -> 'queues') is distinct from 'array'
        or jsonb_array_length(p_request -> 'queues') not between 1 and 1000
    then
        perform sluicegate.refuse('SG001', 'queues', 'A claim names 1 to 1,000 queues.', 'Send "queues": ["name"].');
    end if;
    if jsonb_typeof(p_request -> 'request_id') not in ('string', 'null') then
        perform sluicegate.refuse('SG001', 'request_id', 'A request_id is text of 1 to 128 bytes.', 'Use a fresh UUID for each request.');
    end if;
    if v_request_id is not null then
        v_kept := sluicegate.request_replay(v_scope_id, v_request_id, 'claim', p_request);
        if v_kept is not null then
            return sluicegate.claim_replay(v_kept, v_lease);
        end if;
    end if;

    v_now := sluicegate.clock();
    select array_agg(q.id order by q.id) into v_queues
    from (select distinct jsonb_array_elements_text(p_request -> 'queues') as name) n
    -- One probe a name: a plan made while there were few queues would read all of the scope.
    cross join lateral (select k.id from sluicegate.queue k where k.scope_id = v_scope_id and k.name = n.name offset 0) q;
    if cardinality(v_queues) is distinct from jsonb_array_length(p_request -> 'queues') then
        -- A name that no queue has may be one that no queue can have.
        perform sluicegate.check_queue_name(case when jsonb_typeof(e) = 'string' then e #>> '{}' end, 'queues')
        from jsonb_array_elements(p_request -> 'queues') e;
    end if;
    v_ids := sluicegate.candidates(v_queues, '{mid}', v_n, v_now);
    if cardinality(v_ids) > 0 then
        v_claims := sluicegate.open_claims(v_ids, v_now, v_lease, p_worker);
    else
        v_empty := not sluicegate.claimable(v_queues, '{mid}', v_now);
    end if;
    -- Nothing taken is nothing to repeat: the same request_id looks again.
    if v_request_id is not null and cardinality(v_ids) > 0 then
        perform sluicegate.request_keep(v_scope_id, v_request_id, 'claim', p_request, (
            select coalesce(jsonb_agg(jsonb_build_object('job_id', c -> 'job' -> 'id', 'attempt_id', c -> 'attempt_id')), '[]')
            from json_array_elements(v_claims) c
        ));
    end if;
    return json_build_object('claims', v_claims, 'deferred', '[]'::json, 'empty', v_empty,
        'gone', '[]'::json, 'replayed', false, 'error', null);
end
$$;

-- One request of a claim: takes up to n jobs of its queues; or names the closed ones (deferred); or says that nothing is claimable
-- (empty), or that peers are in the way (none of the three: ask again); held names the queues that one kept locked. A repeated request_id opens nothing more. p_freed and p_lanes: queue
-- and lane of each job that the call has ended; taken: queue of each that is claimed. Locks candidates with SKIP LOCKED, then lanes, one queue
-- after the other; a transaction that holds lanes already waits for none. Raises SG001, SG002, SG003.
-- grants: none
create or replace function sluicegate.claim_request(
    p_request jsonb, p_worker text, p_freed bigint[], p_lanes smallint[], p_wait boolean, out response json, out taken bigint[]
)
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
    v_queue record;
    v_known integer := 0;
    v_open bigint[] := '{}';
    v_closed bigint[] := '{}';
    v_taken record;
    v_opened record;
    v_claims json[] := '{}';
    v_ids bigint[] := '{}';
    v_attempts bigint[] := '{}';
    v_count integer := 0;
    v_verdict jsonb;
    v_locked jsonb;
    v_verdicts jsonb := '{}';
    v_deferred jsonb := '[]';
    v_kept jsonb;
    v_busy boolean := false;
    v_held bigint[] := '{}';
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
            response := sluicegate.claim_replay(v_kept, v_lease);
            return;
        end if;
    end if;

    taken := '{}';
    v_now := sluicegate.clock();
    for v_queue in
        select q.id, q.governed
        from (select distinct jsonb_array_elements_text(p_request -> 'queues') as name) n
        -- One probe a name: a plan made while there were few queues would read all of the scope.
        cross join lateral (
            select k.id, k.governed from sluicegate.queue k where k.scope_id = v_scope_id and k.name = n.name offset 0
        ) q
        order by q.id
    loop
        v_known := v_known + 1;
        v_verdict := case when v_queue.governed then coalesce(v_locked, sluicegate.looks_closed(v_queue.id, v_now)) end;
        if v_verdict ->> 'fault_code' = '55P03' then
            -- A table that is locked away is so for every policy: nobody waits for it twice.
            v_locked := v_verdict;
        end if;
        if v_verdict ->> 'state' = 'deferred' then
            v_closed := v_closed || v_queue.id;
            v_verdicts := v_verdicts || jsonb_build_object(v_queue.id::text, v_verdict);
        else
            v_open := v_open || v_queue.id;
        end if;
    end loop;
    if v_known <> jsonb_array_length(p_request -> 'queues') then
        -- A name that no queue has may be one that no queue can have.
        perform sluicegate.check_queue_name(case when jsonb_typeof(e) = 'string' then e #>> '{}' end, 'queues')
        from jsonb_array_elements(p_request -> 'queues') e;
    end if;

    -- Another round only when a queue turned out to be closed: it leaves, and the others get its place.
    while cardinality(v_open) > 0 and v_count < v_n loop
        -- SKIP LOCKED may wait (admit_fast).
        perform sluicegate.wait_briefly();
        v_taken := sluicegate.take(v_open, v_n - v_count, v_now, p_freed, p_lanes, p_wait);
        if cardinality(v_taken.ids) > 0 then
            v_opened := sluicegate.open_claims(v_taken.ids, v_taken.at, v_taken.lanes, v_taken.lapsed > 0, v_lease, p_worker);
            v_claims := v_claims || v_opened.claims;
            v_ids := v_ids || v_taken.ids;
            v_attempts := v_attempts || v_opened.attempts;
            taken := taken || v_opened.queues;
            v_count := cardinality(v_ids);
        end if;
        v_busy := v_busy or cardinality(v_taken.busy) > 0;
        v_held := v_held || v_taken.held;
        v_closed := v_closed || v_taken.closed;
        v_verdicts := v_verdicts || v_taken.verdicts;
        if v_locked is null and v_taken.verdicts <> '{}' then
            select v.value into v_locked from jsonb_each(v_taken.verdicts) v where v.value ->> 'fault_code' = '55P03' limit 1;
            if v_locked is not null then
                v_closed := v_closed || array(select q.id from sluicegate.queue q where q.id = any (v_open) and q.governed and q.id <> all (v_closed));
                select v_verdicts || coalesce(jsonb_object_agg(c, v_locked), '{}') into v_verdicts from unnest(v_closed) c where not v_verdicts ? c::text;
                v_open := array(select o from unnest(v_open) o where o <> all (v_closed));
                continue;
            end if;
        end if;
        exit when cardinality(v_taken.closed) + cardinality(v_taken.busy) = 0;
        v_open := array(select o from unnest(v_open) o where o <> all (v_taken.closed || v_taken.busy));
    end loop;

    if v_count < v_n then
        for v_queue in select c as id, sluicegate.deferral(c, v_now, v_verdicts -> c::text) as entry from unnest(v_closed) c loop
            if v_queue.entry is null then
                -- It has opened meanwhile, or nothing waits in it.
                v_open := v_open || v_queue.id;
            else
                v_deferred := v_deferred || v_queue.entry;
            end if;
        end loop;
    end if;
    if v_count = 0 and not v_busy then
        v_busy := sluicegate.claimable(v_open, '{mid}', v_now);
    end if;
    -- Nothing taken is nothing to repeat: the same request_id looks again.
    if v_request_id is not null and v_count > 0 then
        perform sluicegate.request_keep(v_scope_id, v_request_id, 'claim', p_request, (
            select jsonb_agg(jsonb_build_object('job_id', i.id, 'attempt_id', i.attempt_id)) from unnest(v_ids, v_attempts) i(id, attempt_id)
        ));
    end if;
    response := json_build_object(
        'claims', case cardinality(v_claims)
            when 0 then '[]'::json
            when 1 then v_claims[1]
            else (select json_agg(c) from unnest(v_claims) part cross join json_array_elements(part) c)
        end,
        'deferred', v_deferred, 'empty', v_count = 0 and not v_busy, 'gone', '[]'::json, 'replayed', false, 'error', null,
        'held', case when v_held = '{}' then '[]'::json else (
            select json_agg(q.name order by q.name) from sluicegate.queue q where q.id = any (v_held)) end);
end
$$;

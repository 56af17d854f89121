-- The committed act of taking jobs, with the finishes of earlier ones, in the order of decision 0003. Job, charge, attempt and lease commit
-- together. Locks: request ids in order; jobs to finish or replay by id; candidates with SKIP LOCKED; lanes of governed queues, of which a call
-- that holds none may wait for one, or for all in order. Without p_wait none is waited for longer than a tenth of a second, nor a job to
-- finish. Raises SG004 unless READ COMMITTED; a fault of one request is an error in its response when the call carries anything else.
-- grants: worker
create or replace function sluicegate.claim(
    p_requests jsonb, p_worker text default null, p_finished jsonb default '[]', p_wait boolean default true
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set jit = off -- steps switched off below make plans look dear enough to compile, up to PostgreSQL 17
set lock_timeout = '10s'
as $$
declare
    v_finishes jsonb := coalesce(p_finished, '[]');
    v_request jsonb;
    v_answered record;
    v_response json;
    v_responses json[] := '{}';
    v_finished json := '[]';
    v_ended record;
    v_late integer[] := '{}';
    v_ord integer;
    v_stopped boolean := false;
    v_owed text;
    v_freed bigint[] := '{}';
    v_lanes smallint[] := '{}';
    v_taken bigint[] := '{}';
    v_bytes bigint := 0;
    v_code text;
    v_message text;
    v_field text;
    v_hint text;
begin
    perform sluicegate.begin_claim();
    perform sluicegate.wait_briefly();
    if not p_wait then
        perform sluicegate.wait_at_most('100 ms');
    end if;
    if jsonb_typeof(p_requests) is distinct from 'array' or jsonb_array_length(p_requests) > 100 then
        perform sluicegate.refuse('SG001', 'requests', 'A claim takes an array of at most 100 requests.',
            'Send [{"queues": ["name"], "n": 1}].');
    end if;
    if jsonb_typeof(v_finishes) <> 'array' or jsonb_array_length(v_finishes) > 10000 then
        perform sluicegate.refuse('SG001', 'finished', 'finished is an array of at most 10,000 items.',
            'Send [{"job_id": 1, "lease_token": "…", "outcome": "completed"}].');
    end if;
    if v_finishes = '[]' and jsonb_array_length(p_requests) = 1 then
        v_answered := sluicegate.claim_request(p_requests -> 0, p_worker, v_freed, v_lanes, p_wait);
        return json_build_object('responses', json_build_array(v_answered.response), 'finished', '[]'::json,
            'server_time', sluicegate.clock())::jsonb;
    end if;

    if jsonb_path_exists(p_requests, '$[*].request_id ? (@ != null)') then
        v_late := sluicegate.claim_locks(p_requests, v_finishes);
    end if;
    if v_finishes <> '[]' then
        v_ended := sluicegate.finish(v_finishes, p_wait);
        v_finished := v_ended.answer;
        v_freed := coalesce(v_ended.queues, '{}');
        v_lanes := coalesce(v_ended.lanes, '{}');
    end if;
    -- In their order, but for a queue that needed all its lanes in this session's last call and came behind one that held some: it
    -- comes first now, or it would be busy for ever.
    if current_setting('sluicegate.owed', true) ~ '^[0-9]{1,18}$' then
        v_owed := (select q.name from sluicegate.queue q where q.id = current_setting('sluicegate.owed', true)::bigint);
        perform set_config('sluicegate.owed', '', false);
    end if;
    for v_request, v_ord in
        select x.r, x.ord from jsonb_array_elements(p_requests) with ordinality as x(r, ord)
        order by (x.r -> 'queues' ? v_owed) is not true, x.ord
    loop
        begin
            if v_stopped then
                perform sluicegate.refuse('57014', null, 'The call was cancelled before it came to this request.', 'Send it again.');
            end if;
            if v_ord = any (v_late) then
                perform sluicegate.refuse('55P03', null, 'Another call with this request_id, or on its jobs, is still running.',
                    'Repeat the request after a short wait.');
            end if;
            -- Each answer is cut at 16 MiB of payloads, and all of them have to fit into one value of 256 MiB that may be six times as long
            -- as their text: what comes after much is asked for again.
            if v_bytes > 16777216 then
                v_response := '{"claims": [], "deferred": [], "empty": false, "gone": [], "replayed": false, "error": null, "held": []}';
            else
                v_answered := sluicegate.claim_request(v_request, p_worker, v_freed, v_lanes, p_wait);
                v_response := v_answered.response;
                v_bytes := v_bytes + pg_column_size(v_response);
                v_taken := v_taken || v_answered.taken;
            end if;
        exception
            -- Also a statement_timeout: what was finished above stands.
            when query_canceled or others then
                v_stopped := v_stopped or sqlstate = '57014';
                get stacked diagnostics v_code = returned_sqlstate, v_message = message_text,
                    v_field = pg_exception_detail, v_hint = pg_exception_hint;
                v_response := json_build_object('claims', '[]'::json, 'deferred', '[]'::json, 'empty', false,
                    'gone', '[]'::json, 'replayed', false, 'held', '[]'::json, 'error', json_build_object(
                        'sqlstate', v_code, 'message', v_message, 'hint', nullif(v_hint, ''),
                        'field', case when v_code like 'SG%' then nullif(v_field, '') end));
        end;
        v_responses[v_ord] := v_response;
    end loop;
    -- A call that took again what it had freed, as under load, has nobody to tell.
    if cardinality(v_freed) > 0 and v_freed <> v_taken then
        perform sluicegate.wake_for_room(v_freed, v_taken, true);
    end if;
    -- Built as text and parsed once: nested jsonb is copied at every level.
    return json_build_object('responses', array_to_json(v_responses), 'finished', v_finished,
        'server_time', sluicegate.clock())::jsonb;
end
$$;

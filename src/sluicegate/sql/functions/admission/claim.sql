-- The committed act of taking jobs, with the finishes of earlier ones: see decision 0003 for the order of its
-- steps. Job, attempt and lease commit together. Locks: request ids in order; finished jobs by id; candidates
-- with SKIP LOCKED, so no claim waits for another. Raises SG004 unless READ COMMITTED; a fault of one request is
-- an error in its response when the call carries anything else, so that the rest stands.
-- grants: worker
create or replace function sluicegate.claim(p_requests jsonb, p_worker text default null, p_finished jsonb default '[]')
returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set lock_timeout = '10s'
as $$
declare
    v_request jsonb;
    v_response jsonb;
    v_responses jsonb := '[]';
    v_finished jsonb := '[]';
    v_alone boolean;
    v_key bigint;
    v_code text;
    v_message text;
    v_field text;
    v_hint text;
begin
    perform sluicegate.begin_claim();
    if jsonb_typeof(p_requests) is distinct from 'array' or jsonb_array_length(p_requests) > 100 then
        perform sluicegate.refuse('SG001', 'requests', 'A claim takes an array of at most 100 requests.',
            'Send [{"queues": ["name"], "n": 1}].');
    end if;
    for v_key in
        select distinct sluicegate.request_key(sluicegate.scope_id(r ->> 'scope'), r ->> 'request_id')
        from jsonb_array_elements(p_requests) r
        where r ->> 'request_id' is not null
        order by 1
    loop
        perform pg_advisory_xact_lock(v_key);
    end loop;

    if p_finished <> '[]' then
        v_finished := sluicegate.finish(p_finished);
    end if;
    v_alone := p_finished = '[]' and jsonb_array_length(p_requests) = 1;
    if v_alone then
        v_responses := jsonb_build_array(sluicegate.claim_request(p_requests -> 0, p_worker));
    else
        for v_request in select r from jsonb_array_elements(p_requests) r loop
            begin
                v_response := sluicegate.claim_request(v_request, p_worker);
            exception
                when others then
                    get stacked diagnostics v_code = returned_sqlstate, v_message = message_text,
                        v_field = pg_exception_detail, v_hint = pg_exception_hint;
                    v_response := jsonb_build_object('claims', '[]'::jsonb, 'deferred', '[]'::jsonb, 'empty', false,
                        'gone', '[]'::jsonb, 'replayed', false, 'error', jsonb_build_object(
                            'sqlstate', v_code, 'message', v_message, 'field', nullif(v_field, ''), 'hint', nullif(v_hint, '')));
            end;
            v_responses := v_responses || jsonb_build_array(v_response);
        end loop;
    end if;
    return jsonb_build_object('responses', v_responses, 'finished', v_finished, 'server_time', sluicegate.clock());
end
$$;

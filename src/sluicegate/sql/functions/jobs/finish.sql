-- The finishes that a claim carries: one answer a job, in input order. A malformed or impossible one is answered,
-- not raised, and stops nothing. Locks the jobs in id order.
-- grants: none
create or replace function sluicegate.finish(p_items jsonb) returns jsonb
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_item record;
    v_answers jsonb[];
    v_message text;
begin
    if jsonb_typeof(p_items) <> 'array' or jsonb_array_length(p_items) > 10000 then
        perform sluicegate.refuse('SG001', 'finished', 'finished is an array of at most 10,000 items.',
            'Send [{"job_id": 1, "lease_token": "…", "outcome": "completed"}].');
    end if;
    begin
        return sluicegate.finish_jobs(p_items);
    exception
        when data_exception or sqlstate 'SG001' or sqlstate 'SG002' or statement_too_complex then
            null;
    end;
    -- Some item is bad: one by one, still in id order, each in a part of its own.
    v_answers := array_fill(null::jsonb, array[jsonb_array_length(p_items)]);
    for v_item in
        select e as item, ord::integer as ord
        from jsonb_array_elements(p_items) with ordinality as x(e, ord)
        order by case when e ->> 'job_id' ~ '^[0-9]{1,18}$' then (e ->> 'job_id')::bigint end, ord
    loop
        begin
            v_answers[v_item.ord] := sluicegate.finish_jobs(jsonb_build_array(v_item.item)) -> 0;
        exception
            when data_exception or sqlstate 'SG001' or sqlstate 'SG002' or statement_too_complex then
                get stacked diagnostics v_message = message_text;
                v_answers[v_item.ord] := jsonb_build_object('job_id', v_item.item -> 'job_id', 'status',
                    case when sqlstate = 'SG002' then 'not_found' else 'invalid_argument' end,
                    'replayed', false, 'message', v_message);
        end;
    end loop;
    return to_jsonb(v_answers);
end
$$;

-- The finishes that a claim carries: one answer a job, in input order. One that is malformed, impossible or held up by
-- another transaction is answered, not raised, and stops nothing. Locks the jobs in id order; a batch waits a second for
-- a job that is held, without p_wait a tenth, then once more a tenth, and goes on without it and all others that are. To tell of the
-- room that they leave is the claim's, which gets the queue and the lane of each job that has ended.
-- grants: none
create or replace function sluicegate.finish(
    p_items jsonb, p_wait boolean, out answer json, out queues bigint[], out lanes smallint[]
)
language plpgsql
set search_path = sluicegate, pg_temp
set lock_timeout = '1s'
as $$
declare
    v_item record;
    v_finished record;
    v_answers json[];
begin
    if not p_wait then
        perform sluicegate.wait_at_most('100 ms');
    end if;
    perform sluicegate.wait_briefly();
    begin
        v_finished := sluicegate.finish_jobs(p_items, false);
        answer := v_finished.answer;
        queues := v_finished.queues;
        lanes := v_finished.lanes;
        return;
    exception
        when data_exception or sqlstate 'SG001' or sqlstate 'SG002' or statement_too_complex or lock_not_available then
            null;
    end;
    -- Some item is bad, or held: one by one, still in id order, each in a part of its own. The first that is held is waited for shortly,
    -- the others not: whoever calls has more to do.
    perform sluicegate.wait_at_most('100 ms');
    v_answers := array_fill(null::json, array[jsonb_array_length(p_items)]);
    for v_item in
        select e as item, ord::integer as ord
        from jsonb_array_elements(p_items) with ordinality as x(e, ord)
        order by case when e ->> 'job_id' ~ '^[0-9]{1,18}$' then (e ->> 'job_id')::bigint end, ord
    loop
        v_finished := sluicegate.finish_one(v_item.item);
        v_answers[v_item.ord] := v_finished.answer;
        if v_finished.answer ->> 'status' = 'unavailable' then
            perform sluicegate.wait_at_most('1 ms');
        end if;
        queues := queues || v_finished.queues;
        lanes := lanes || v_finished.lanes;
    end loop;
    answer := array_to_json(v_answers);
end
$$;

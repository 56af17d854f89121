-- Which field of an enqueue_many call is of the wrong type, as jobs[N].field. Only ever asked after a
-- conversion has failed, so it may be slow.
-- grants: none
create or replace function sluicegate.job_cast_fault(p_jobs jsonb) returns text
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_job jsonb;
    v_ord bigint;
    v_field text;
begin
    for v_job, v_ord in select e, ord - 1 from jsonb_array_elements(p_jobs) with ordinality as x(e, ord) loop
        begin
            v_field := 'priority';
            perform (v_job ->> 'priority')::numeric;
            v_field := 'parent_id';
            perform (v_job ->> 'parent_id')::bigint;
            v_field := 'max_attempts';
            perform (v_job ->> 'max_attempts')::numeric;
        exception
            when data_exception then
                return format('jobs[%s].%s', v_ord, v_field);
        end;
    end loop;
    return 'jobs';
end
$$;

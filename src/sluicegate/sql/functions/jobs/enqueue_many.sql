-- Adds 1 to 10,000 jobs in one round trip, inside the caller's transaction, all or none; answers in input
-- order. insert_jobs does the work and says what it waits for. Raises SG001 naming jobs[N].field, SG002, SG003.
-- grants: worker, producer
create or replace function sluicegate.enqueue_many(
    p_jobs jsonb, p_request_id text default null, p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
as $$
declare
    v_field text;
begin
    if jsonb_typeof(p_jobs) is distinct from 'array' or jsonb_array_length(p_jobs) not between 1 and 10000 then
        perform sluicegate.refuse('SG001', 'jobs', 'Enqueue takes an array of 1 to 10,000 jobs.',
            'Send larger batches in several calls.');
    end if;
    select format('jobs[%s]%s', x.ord - 1, coalesce('.' || (
        select min(k) from jsonb_object_keys(case when jsonb_typeof(x.e) = 'object' then x.e else '{}' end) k
        where k <> all ('{queue,payload,kind,title,priority,run_at,dedup_key,tags,parent_id,max_attempts,backoff}'::text[])
    ), ''))
    into v_field
    from jsonb_array_elements(p_jobs) with ordinality as x(e, ord)
    where jsonb_typeof(x.e) <> 'object'
        or x.e - '{queue,payload,kind,title,priority,run_at,dedup_key,tags,parent_id,max_attempts,backoff}'::text[] <> '{}'
    order by x.ord limit 1;
    if found then
        perform sluicegate.refuse('SG001', v_field, format('%s is not a field of a job.', v_field),
            'A job has queue, payload, kind, title, priority, run_at, dedup_key, tags, parent_id, max_attempts and backoff.');
    end if;
    return sluicegate.insert_jobs(p_jobs, p_request_id, p_scope, 'jobs[%1$s].%2$s');
exception
    when data_exception then
        perform sluicegate.refuse_job_field(sluicegate.job_cast_fault(p_jobs));
        raise;
end
$$;

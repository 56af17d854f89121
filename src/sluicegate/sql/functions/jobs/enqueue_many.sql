-- Adds 1 to 10,000 jobs in one round trip, inside the caller's transaction, all or none; answers in input
-- order. insert_jobs does the work and says what it waits for; p_wake as in enqueue. Raises SG001 naming jobs[N].field, SG002, SG003.
-- grants: worker, producer
create or replace function sluicegate.enqueue_many(
    p_jobs jsonb, p_request_id text default null, p_scope text default 'endpoint:default', p_wake boolean default true
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
as $$
declare
    v_known text[] := '{queue,payload,kind,title,priority,run_at,dedup_key,tags,parent_id,max_attempts,backoff}';
    v_fault record;
begin
    if jsonb_typeof(p_jobs) is distinct from 'array' or jsonb_array_length(p_jobs) not between 1 and 10000 then
        perform sluicegate.refuse('SG001', 'jobs', 'Enqueue takes an array of 1 to 10,000 jobs.',
            'Send larger batches in several calls.');
    end if;
    select format('jobs[%s]', f.ord - 1) as job, f.field, f.field = '' or f.field <> all (v_known) as unknown into v_fault
    from (
        select x.ord, case
                when jsonb_typeof(x.e) <> 'object' then ''
                when x.e - v_known <> '{}' then (select min(k) from jsonb_object_keys(x.e) k where k <> all (v_known))
                when jsonb_typeof(x.e -> 'queue') <> 'string' then 'queue'
                when jsonb_typeof(x.e -> 'kind') not in ('string', 'null') then 'kind'
                when jsonb_typeof(x.e -> 'title') not in ('string', 'null') then 'title'
                when jsonb_typeof(x.e -> 'priority') not in ('number', 'null') then 'priority'
                when jsonb_typeof(x.e -> 'dedup_key') not in ('string', 'null') then 'dedup_key'
                when jsonb_typeof(x.e -> 'parent_id') not in ('number', 'null') then 'parent_id'
                when jsonb_typeof(x.e -> 'max_attempts') not in ('number', 'null') then 'max_attempts'
            end as field
        from jsonb_array_elements(p_jobs) with ordinality as x(e, ord)
    ) f
    where f.field is not null
    order by f.ord limit 1;
    if v_fault.unknown then
        perform sluicegate.refuse('SG001', rtrim(v_fault.job || '.' || v_fault.field, '.'),
            case when v_fault.field = '' then format('%s is not an object.', v_fault.job)
                else format('%s.%s is not a field of a job.', v_fault.job, v_fault.field) end,
            'A job has queue, payload, kind, title, priority, run_at, dedup_key, tags, parent_id, max_attempts and backoff.');
    elsif v_fault.field is not null then
        perform sluicegate.refuse_job_field(v_fault.job || '.' || v_fault.field);
    end if;
    loop
        begin
            return sluicegate.insert_jobs(p_jobs, p_request_id, p_scope, 'jobs[%1$s].%2$s', p_wake);
        exception
            when sqlstate 'SG0DK' then
                -- A job that had one of the keys ended meanwhile. All again: to add the one alone would take it out of order.
                null;
            when data_exception then
                perform sluicegate.refuse_job_field(sluicegate.job_cast_fault(p_jobs));
                raise;
        end;
    end loop;
end
$$;

-- A scope's jobs, newest first, p_limit a page; next_before_id continues. Takes no lock. Raises SG001, SG002.
-- grants: worker, reader
create or replace function sluicegate.list_jobs(
    p_queue text default null, p_state text default null, p_kind text default null, p_limit integer default 50,
    p_before_id bigint default null, p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_queue_id bigint;
    v_jobs jsonb;
begin
    if p_limit is null or p_limit not between 1 and 200 then
        perform sluicegate.refuse('SG001', 'limit', 'A page has 1 to 200 jobs.', 'Ask for fewer and continue with next_before_id.');
    end if;
    if p_state is not null and p_state not in ('scheduled', 'pending', 'claimed', 'done', 'failed', 'cancelled') then
        perform sluicegate.refuse('SG001', 'state', format('%L is not a state of a job.', left(p_state, 40)),
            'The states are scheduled, pending, claimed, done, failed and cancelled.');
    end if;
    if p_queue is not null then
        select q.id into v_queue_id from sluicegate.queue q where q.scope_id = v_scope_id and q.name = p_queue;
        if not found then
            perform sluicegate.refuse('SG002', 'queue', format('There is no queue %L in this scope.', left(p_queue, 140)),
                'The first enqueue creates a queue.');
        end if;
    end if;
    select coalesce(jsonb_agg(sluicegate.job_row(j.job, q.name) order by (j.job).id desc), '[]') into v_jobs
    from (
        select job
        from sluicegate.job
        where job.scope_id = v_scope_id
            and (v_queue_id is null or job.queue_id = v_queue_id)
            and (p_state is null or job.state = p_state)
            and (p_kind is null or job.kind = p_kind)
            and (p_before_id is null or job.id < p_before_id)
        order by job.id desc
        limit p_limit
    ) j
    join sluicegate.queue q on q.id = (j.job).queue_id;
    return jsonb_build_object('jobs', v_jobs, 'next_before_id',
        case when jsonb_array_length(v_jobs) = p_limit then v_jobs -> -1 -> 'id' end);
end
$$;

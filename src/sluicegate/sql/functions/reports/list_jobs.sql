-- A scope's jobs, newest first, p_limit a page; next_before_id continues, null at the end. A page may be short and yet not the last: list_page
-- says how far it looks. Each job that waits has its admission status, null for the others. Takes no lock. Raises SG001, SG002.
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
    v_queues bigint[];
    v_page record;
begin
    if p_limit is null or p_limit not between 1 and 200 then
        perform sluicegate.refuse('SG001', 'limit', 'A page has 1 to 200 jobs.', 'Ask for fewer and continue with next_before_id.');
    end if;
    if p_state is not null and p_state not in ('scheduled', 'pending', 'claimed', 'done', 'failed', 'cancelled') then
        perform sluicegate.refuse('SG001', 'state', format('%L is not a state of a job.', left(p_state, 40)),
            'The states are scheduled, pending, claimed, done, failed and cancelled.');
    end if;
    if p_queue is not null then
        v_queues := array[sluicegate.known_queue(v_scope_id, p_queue)];
    else
        v_queues := array(select q.id from sluicegate.queue q where q.scope_id = v_scope_id);
    end if;
    v_page := sluicegate.list_page(v_queues, p_state, p_kind, p_limit, p_before_id);
    return jsonb_build_object('next_before_id', v_page.next_before_id, 'jobs', (
        select coalesce(jsonb_agg(sluicegate.job_row(i.id) || jsonb_build_object('admission', a.admission) order by i.ord), '[]')
        from unnest(v_page.ids) with ordinality as i(id, ord)
        left join sluicegate.job_admissions(v_page.ids, sluicegate.clock()) a on a.id = i.id
    ));
end
$$;

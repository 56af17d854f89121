-- What enqueue and enqueue_many share. A job whose dedup_key belongs to a live job of the scope is not
-- added: the answer names that job, created false. Rows are inserted in the order of their dedup keys, so two
-- calls cannot deadlock; waits only for a transaction that is adding the same key or queue. Raises SG001-SG003.
-- grants: none
create or replace function sluicegate.insert_jobs(
    p_jobs jsonb, p_request_id text, p_scope text, p_field text, p_wake boolean
) returns jsonb
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_names text[];
    v_queue_ids bigint[];
    v_now timestamptz;
    v_ids bigint[];
    v_added bigint[];
    v_all boolean;
    v_states text[];
    v_faults text[];
    v_keys text[];
    v_answer jsonb;
    v_freed boolean := false;
begin
    if p_request_id is not null then
        v_answer := sluicegate.request_replay(v_scope_id, p_request_id, 'enqueue', p_jobs);
        if v_answer is not null then
            return v_answer || '{"replayed": true}';
        end if;
    end if;

    select array_agg(n.name), array_agg(q.id) into v_names, v_queue_ids
    from (select distinct e ->> 'queue' as name from jsonb_array_elements(p_jobs) e) n
    -- One probe a name: a plan made while there were few queues would read all of the scope.
    left join lateral (select k.id from sluicegate.queue k where k.scope_id = v_scope_id and k.name = n.name offset 0) q on true;
    if array_position(v_queue_ids, null) is not null then
        select array_agg(n.name), array_agg(sluicegate.queue_id(v_scope_id, n.name, format(p_field, n.ord, 'queue')))
        into v_names, v_queue_ids
        from (
            select e ->> 'queue' as name, min(ord) - 1 as ord
            from jsonb_array_elements(p_jobs) with ordinality as x(e, ord)
            group by 1
            order by 1
        ) n;
    end if;
    v_now := sluicegate.clock();

    -- "offset 0" keeps a level from being written into the next, where each of its expressions would run several times.
    with numbered as materialized (
        -- Ids follow the input, whatever order the joins gave: they break ties of priority and due time.
        select nextval('sluicegate.job_id_seq') as id, c.*
        from (
            select i.*, case when i.due > v_now then 'scheduled' else 'pending' end as state, case
                    when i.size > 200 and (i.size > 1048576
                        or jsonb_path_exists(i.payload, 'strict $.**{100} ? (@.type() == "object" || @.type() == "array")'))
                        then 'payload'
                    when octet_length(i.kind) > 128 then 'kind'
                    when octet_length(i.title) > 512 then 'title'
                    when i.rank <> trunc(i.rank) or i.rank not between -32768 and 32767 then 'priority'
                    when i.due is null then 'run_at'
                    when octet_length(i.dedup_key) not between 1 and 512 then 'dedup_key'
                    when jsonb_typeof(i.tags) not in ('array', 'null') or i.tag_list <> '{}' and (cardinality(i.tag_list) > 32
                        or exists (select from unnest(i.tag_list) t where t is null or octet_length(t) not between 1 and 64))
                        then 'tags'
                    when i.parent_id is not null and i.parent_priority is null then 'parent_id'
                    when i.max_attempts <> trunc(i.max_attempts) or i.max_attempts not between 1 and 1000 then 'max_attempts'
                    when case when i.backoff <> 'null' then sluicegate.backoff_seconds(i.backoff, 1) is null end then 'backoff'
                end as fault
            from (
                select x.*, coalesce(x.priority, x.parent_priority, 10) as rank, octet_length(x.payload::text) as size,
                    case when x.run_at is null then v_now else sluicegate.moment(x.run_at) end as due,
                    case when jsonb_typeof(x.tags) = 'array' then array(
                        select case when jsonb_typeof(t) = 'string' then t #>> '{}' end from jsonb_array_elements(x.tags) t
                    ) else '{}' end as tag_list
                from (
                    select r.*, u.queue_id, case when r.parent_id is not null then (
                            select p.priority from sluicegate.job p where p.id = r.parent_id and p.scope_id = v_scope_id
                        ) end as parent_priority
                    from rows from (jsonb_to_recordset(p_jobs) as (
                            queue text, payload jsonb, kind text, title text, priority numeric, run_at jsonb, dedup_key text,
                            tags jsonb, parent_id bigint, max_attempts numeric, backoff jsonb
                        )) with ordinality as r(
                            queue, payload, kind, title, priority, run_at, dedup_key, tags, parent_id, max_attempts, backoff,
                            ord
                        )
                    join unnest(v_names, v_queue_ids) as u(name, queue_id) on u.name = r.queue
                    offset 0
                ) x
                offset 0
            ) i
            order by i.ord
        ) c
    ), plain as (
        insert into sluicegate.job (id, queue_id, scope_id, state, priority, run_at, kind, title, tags, payload,
            parent_id, max_attempts, backoff, created_at)
        select i.id, i.queue_id, v_scope_id, i.state, i.rank::smallint, i.due, coalesce(i.kind, ''), coalesce(i.title, ''),
            i.tag_list, coalesce(i.payload, 'null'), i.parent_id, coalesce(i.max_attempts, 5)::integer,
            nullif(i.backoff, 'null'), v_now
        from numbered i
        where i.fault is null and i.dedup_key is null
    ), keyed as (
        insert into sluicegate.job (id, queue_id, scope_id, state, priority, run_at, kind, title, tags, payload,
            parent_id, dedup_key, max_attempts, backoff, created_at)
        select i.id, i.queue_id, v_scope_id, i.state, i.rank::smallint, i.due, coalesce(i.kind, ''), coalesce(i.title, ''),
            i.tag_list, coalesce(i.payload, 'null'), i.parent_id, i.dedup_key, coalesce(i.max_attempts, 5)::integer,
            nullif(i.backoff, 'null'), v_now
        from numbered i
        where i.fault is null and i.dedup_key is not null
        order by i.dedup_key, i.id
        on conflict (scope_id, dedup_key)
            where dedup_key is not null and state in ('scheduled', 'pending', 'claimed') do nothing
        returning id
    )
    select array_agg(i.id order by i.id), array_agg(i.state order by i.id), array_agg(i.queue order by i.id),
        array_agg(i.dedup_key order by i.id), (select array_agg(k.id) from keyed k),
        count(i.dedup_key) = (select count(*) from keyed),
        array_agg(format(p_field, i.ord - 1, i.fault) order by i.id) filter (where i.fault is not null)
    into v_ids, v_states, v_names, v_keys, v_added, v_all, v_faults
    from numbered i;

    if v_faults is not null then
        perform sluicegate.refuse_job_field(v_faults[1]);
    end if;
    if v_all then
        v_answer := (
            select json_build_object('replayed', false, 'jobs', json_agg(r))
            from (
                select t.id, true as created, t.state, t.queue
                from unnest(v_ids, v_states, v_names) with ordinality as t(id, state, queue, ord)
                order by t.ord
            ) r
        )::jsonb;
    else
        -- Grouped, not joined: the planner expects few and would compare every job with every other.
        select array_agg(case when g.added then g.id end order by g.id) into v_ids
        from (
            select u.id, max(u.key) is null or count(*) = 2 as added
            from (
                select k.id, k.key from unnest(v_ids, v_keys) as k(id, key)
                union all
                select a.id, null from unnest(v_added) as a(id)
            ) u
            group by u.id
        ) g;
        select jsonb_build_object('replayed', false, 'jobs', jsonb_agg(
                case
                    when t.id is not null then
                        jsonb_build_object('id', t.id, 'created', true, 'state', t.state, 'queue', t.queue)
                    when j.id is not null then
                        jsonb_build_object('id', j.id, 'created', false, 'state', j.state, 'queue', j.name)
                end
                order by t.ord
            )), bool_or(t.id is null and j.id is null)
        into v_answer, v_freed
        from unnest(v_ids, v_states, v_names, v_keys) with ordinality as t(id, state, queue, key, ord)
        -- Lateral and limited: a plain join would read every key of the scope for each job, were the table thought small.
        left join lateral (
            select d.id, d.state, q.name
            from sluicegate.job d join sluicegate.queue q on q.id = d.queue_id
            where t.id is null and d.scope_id = v_scope_id and d.dedup_key = t.key
                and d.state in ('scheduled', 'pending', 'claimed')
            limit 1
        ) j on true;
    end if;
    if v_freed and cardinality(v_keys) = 1 then
        -- The job in the way ended between the two statements: its key is free again.
        v_answer := sluicegate.insert_jobs(p_jobs, null, p_scope, p_field, p_wake);
    elsif v_freed then
        -- Among many it is not added alone, out of order: enqueue_many starts again.
        perform sluicegate.refuse('SG0DK', 'dedup_key', 'A job with one of these dedup keys has just ended.', 'Enqueue again.');
    elsif exists (select from sluicegate.ready_cursor c where c.queue_id = any (v_queue_ids)
        and c.looked_at > clock_timestamp() - interval '1 second')
    then
        perform sluicegate.ready_below(v_ids);
    end if;
    if p_wake is distinct from false and not v_freed and array_remove(v_ids, null) <> '{}' then
        perform sluicegate.wake_workers(v_queue_ids, p_wake is null);
    end if;
    if p_request_id is not null then
        perform sluicegate.request_keep(v_scope_id, p_request_id, 'enqueue', p_jobs, v_answer);
    end if;
    return v_answer;
end
$$;

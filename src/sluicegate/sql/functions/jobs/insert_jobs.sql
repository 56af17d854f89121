-- What enqueue and enqueue_many share. A job whose dedup_key belongs to a live job of the scope is not
-- added: the answer names that job, created false. Rows are inserted in the order of their dedup keys, so two
-- calls cannot deadlock; waits only for a transaction that is adding the same key or queue. Raises SG001-SG003.
-- grants: none
create or replace function sluicegate.insert_jobs(p_jobs jsonb, p_request_id text, p_scope text, p_field text)
returns jsonb
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_names text[];
    v_queue_ids bigint[];
    v_ids bigint[];
    v_states text[];
    v_faults text[];
    v_keys text[];
    v_answer jsonb;
    v_freed boolean;
begin
    if p_request_id is not null then
        v_answer := sluicegate.request_replay(v_scope_id, p_request_id, 'enqueue', p_jobs);
        if v_answer is not null then
            return v_answer || '{"replayed": true}';
        end if;
    end if;

    select array_agg(n.name), array_agg(sluicegate.queue_id(v_scope_id, n.name, format(p_field, n.ord, 'queue')))
    into v_names, v_queue_ids
    from (
        select e ->> 'queue' as name, min(ord) - 1 as ord
        from jsonb_array_elements(p_jobs) with ordinality as x(e, ord)
        group by 1
        order by 1
    ) n;

    with item as materialized (
        select x.*, u.queue_id, p.id as known_parent, n.now,
            coalesce(x.priority, p.priority, 10) as rank,
            case when x.run_at is null then n.now else sluicegate.moment(x.run_at) end as due,
            case when x.tags is null or jsonb_typeof(x.tags) <> 'array' then '{}'
                else array(select case when jsonb_typeof(t) = 'string' then t #>> '{}' end from jsonb_array_elements(x.tags) t)
            end as tag_list
        from rows from (jsonb_to_recordset(p_jobs) as (
                queue text, payload jsonb, kind text, title text, priority numeric, run_at jsonb, dedup_key text,
                tags jsonb, parent_id bigint, max_attempts numeric, backoff jsonb
            )) with ordinality as x(
                queue, payload, kind, title, priority, run_at, dedup_key, tags, parent_id, max_attempts, backoff, ord
            )
        cross join (select sluicegate.clock() as now) n
        join unnest(v_names, v_queue_ids) as u(name, queue_id) on u.name = x.queue
        left join sluicegate.job p on p.id = x.parent_id and p.scope_id = v_scope_id
    ), checked as materialized (
        select i.*, case
                when octet_length(i.payload::text) > 200 and (octet_length(i.payload::text) > 1048576
                    or jsonb_path_exists(i.payload, 'strict $.**{100} ? (@.type() == "object" || @.type() == "array")'))
                    then 'payload'
                when octet_length(i.kind) > 128 then 'kind'
                when octet_length(i.title) > 512 then 'title'
                when i.rank <> trunc(i.rank) or i.rank not between -32768 and 32767 then 'priority'
                when i.due is null then 'run_at'
                when octet_length(i.dedup_key) not between 1 and 512 then 'dedup_key'
                when jsonb_typeof(i.tags) not in ('array', 'null') or cardinality(i.tag_list) > 32
                    or exists (select from unnest(i.tag_list) t where t is null or octet_length(t) not between 1 and 64)
                    then 'tags'
                when i.parent_id is not null and i.known_parent is null then 'parent_id'
                when i.max_attempts <> trunc(i.max_attempts) or i.max_attempts not between 1 and 1000 then 'max_attempts'
                when jsonb_typeof(i.backoff) <> 'null' and sluicegate.backoff_seconds(i.backoff, 1) is null then 'backoff'
            end as fault
        from item i
    ), numbered as materialized (
        -- Ids follow the input, whatever order the joins gave: they break ties of priority and due time.
        select nextval('sluicegate.job_id_seq') as id, c.* from (select * from checked order by ord) c
    ), added as (
        insert into sluicegate.job (id, queue_id, scope_id, state, priority, run_at, kind, title, tags, payload,
            parent_id, dedup_key, max_attempts, backoff, created_at)
        select i.id, i.queue_id, v_scope_id, case when i.due > i.now then 'scheduled' else 'pending' end,
            i.rank::smallint, i.due, coalesce(i.kind, ''), coalesce(i.title, ''), i.tag_list, coalesce(i.payload, 'null'),
            i.parent_id, i.dedup_key, coalesce(i.max_attempts, 5)::integer, nullif(i.backoff, 'null'), i.now
        from numbered i
        where i.fault is null
        order by i.dedup_key, i.id
        on conflict (scope_id, dedup_key)
            where dedup_key is not null and state in ('scheduled', 'pending', 'claimed') do nothing
        returning id, state
    )
    -- Grouped, not joined: the planner expects one row and would compare every job with every other.
    select array_agg(case when g.state is not null then g.id end order by g.ord), array_agg(g.state order by g.ord),
        array_agg(g.queue order by g.ord), array_agg(g.dedup_key order by g.ord),
        array_agg(format(p_field, g.ord - 1, g.fault) order by g.ord) filter (where g.fault is not null)
    into v_ids, v_states, v_names, v_keys, v_faults
    from (
        select u.id, max(u.ord) as ord, max(u.state) as state, max(u.queue) as queue, max(u.dedup_key) as dedup_key,
            max(u.fault) as fault
        from (
            select i.id, i.ord, null as state, i.queue, i.dedup_key, i.fault from numbered i
            union all
            select a.id, null, a.state, null, null, null from added a
        ) u
        group by u.id
    ) g;

    if v_faults is not null then
        perform sluicegate.refuse_job_field(v_faults[1]);
    end if;
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
    if v_freed and cardinality(v_keys) = 1 then
        -- The job in the way ended between the two statements: its key is free again.
        v_answer := sluicegate.insert_jobs(p_jobs, null, p_scope, p_field);
    elsif v_freed then
        -- Among many it is not added alone, out of order: enqueue_many starts again.
        perform sluicegate.refuse('SG0DK', 'dedup_key', 'A job with one of these dedup keys has just ended.', 'Enqueue again.');
    elsif exists (select from sluicegate.ready_cursor c where c.queue_id = any (v_queue_ids)
        and c.looked_at > clock_timestamp() - interval '1 second')
    then
        perform sluicegate.ready_below(v_ids);
    end if;
    if p_request_id is not null then
        perform sluicegate.request_keep(v_scope_id, p_request_id, 'enqueue', p_jobs, v_answer);
    end if;
    return v_answer;
end
$$;

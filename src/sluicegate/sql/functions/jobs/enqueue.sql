-- Adds one job, inside the caller's transaction; insert_jobs does the work and says what it waits for. p_wake false tells no worker of it:
-- only for callers that have told of the queue within the last 40 ms and commit at once. Null tells even if the queue is closed now: for
-- transactions that go on for long, in which it may open.
-- Answers {id, created, state, queue}. Raises SG001, SG002, SG003.
-- grants: worker, producer
create or replace function sluicegate.enqueue(
    p_queue text,
    p_payload jsonb default 'null',
    p_kind text default '',
    p_title text default '',
    p_priority integer default null,
    p_run_at timestamptz default null,
    p_dedup_key text default null,
    p_tags text[] default '{}',
    p_parent_id bigint default null,
    p_max_attempts integer default 5,
    p_backoff jsonb default null,
    p_request_id text default null,
    p_scope text default 'endpoint:default',
    p_wake boolean default true
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set timezone = 'UTC'
set plan_cache_mode = force_generic_plan
as $$
declare
    v_jobs jsonb := jsonb_build_array(jsonb_build_object(
        'queue', p_queue, 'payload', p_payload, 'kind', p_kind, 'title', p_title, 'priority', p_priority,
        'run_at', p_run_at, 'dedup_key', p_dedup_key, 'tags', p_tags, 'parent_id', p_parent_id,
        'max_attempts', p_max_attempts, 'backoff', p_backoff
    ));
    v_scope_id bigint;
    v_queue_id bigint;
    v_id bigint;
    v_now timestamptz;
    v_answer jsonb;
begin
    -- A job with nothing in it that could be refused goes the short way. What may be refused is decided in insert_jobs alone.
    if p_run_at is null and p_parent_id is null and p_backoff is null and p_tags = '{}' and p_max_attempts between 1 and 1000
        and (p_priority is null or p_priority between -32768 and 32767) and octet_length(p_payload::text) <= 200
        and octet_length(p_kind) <= 128 and octet_length(p_title) <= 512
        and (p_dedup_key is null or octet_length(p_dedup_key) between 1 and 512)
    then
        v_scope_id := sluicegate.scope_id(p_scope);
        select q.id into v_queue_id
        from sluicegate.queue q
        where q.scope_id = v_scope_id and q.name = p_queue and not exists (
            select from sluicegate.ready_cursor c
            where c.queue_id = q.id and c.looked_at > clock_timestamp() - interval '1 second'
        );
    end if;
    if v_queue_id is not null then
        if p_request_id is not null then
            v_answer := sluicegate.request_replay(v_scope_id, p_request_id, 'enqueue', v_jobs);
            if v_answer is not null then
                return v_answer -> 'jobs' -> 0;
            end if;
        end if;
        v_now := sluicegate.clock();
        insert into sluicegate.job (queue_id, scope_id, state, priority, run_at, kind, title, payload, dedup_key,
            max_attempts, created_at)
        values (v_queue_id, v_scope_id, 'pending', coalesce(p_priority, 10), v_now, p_kind, p_title, p_payload,
            p_dedup_key, p_max_attempts, v_now)
        on conflict (scope_id, dedup_key)
            where dedup_key is not null and state in ('scheduled', 'pending', 'claimed') do nothing
        returning id into v_id;
    end if;
    if v_id is null then
        return sluicegate.insert_jobs(v_jobs, p_request_id, p_scope, '%2$s', p_wake) -> 'jobs' -> 0;
    end if;
    if p_wake is distinct from false then
        perform sluicegate.wake_workers(array[v_queue_id], p_wake is null);
    end if;
    v_answer := jsonb_build_object('id', v_id, 'created', true, 'state', 'pending', 'queue', p_queue);
    if p_request_id is not null then
        perform sluicegate.request_keep(v_scope_id, p_request_id, 'enqueue', v_jobs,
            jsonb_build_object('replayed', false, 'jobs', jsonb_build_array(v_answer)));
    end if;
    return v_answer;
end
$$;

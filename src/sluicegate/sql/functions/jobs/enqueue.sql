-- Adds one job, inside the caller's transaction; insert_jobs does the work and says what it waits for.
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
    p_scope text default 'endpoint:default'
) returns jsonb
language sql security definer
set search_path = sluicegate, pg_temp
set timezone = 'UTC'
as $$
select sluicegate.insert_jobs(
    jsonb_build_array(jsonb_build_object(
        'queue', p_queue, 'payload', p_payload, 'kind', p_kind, 'title', p_title, 'priority', p_priority,
        'run_at', p_run_at, 'dedup_key', p_dedup_key, 'tags', p_tags, 'parent_id', p_parent_id,
        'max_attempts', p_max_attempts, 'backoff', p_backoff
    )),
    p_request_id, p_scope, '%2$s'
) -> 'jobs' -> 0
$$;

-- Deletes what retention lets go, a batch of each kind a call: finished jobs by age and number (never live ones), attempts by age, counted
-- into attempt_count first, answers to request ids after 24 h, late calls with the attempts, and what prune_budgets says. SKIP LOCKED:
-- waits for nobody but another prune. Raises SG001 for attempts kept under 32 days, the longest window, SG005 for a caller
-- who is no administrator and would keep less than the defaults do. Nobody may shorten the rest.
-- grants: worker
create or replace function sluicegate.prune(
    p_job_days integer default 30, p_keep_jobs bigint default 500000, p_attempt_days integer default 45,
    p_limit integer default 10000
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_now timestamptz := sluicegate.clock();
    v_jobs bigint;
    v_surplus bigint;
    v_attempts bigint;
    v_counts bigint;
    v_requests bigint;
    v_late bigint;
    v_budgets record;
begin
    if p_job_days is null or p_job_days not between 0 and 36500 then
        perform sluicegate.refuse('SG001', 'job_days', 'Finished jobs are kept for 0 to 36,500 days.', 'Use 30 if unsure.');
    end if;
    if p_keep_jobs is null or p_keep_jobs < 0 then
        perform sluicegate.refuse('SG001', 'keep_jobs', 'The number of finished jobs to keep cannot be negative.', 'Use 500000 if unsure.');
    end if;
    if p_attempt_days is null or p_attempt_days not between 32 and 36500 then
        perform sluicegate.refuse('SG001', 'attempt_days', 'Attempts are the ledger of every window and are kept for at least 32 days.',
            'Use 32 to 36500.');
    end if;
    if p_limit is null or p_limit not between 1 and 1000000 then
        perform sluicegate.refuse('SG001', 'limit', 'One call deletes up to 1 to 1,000,000 rows of a kind.', 'Use 10000 if unsure.');
    end if;

    if (p_job_days < 30 or p_keep_jobs < 500000 or p_attempt_days < 45) and not sluicegate.is_admin() then
        perform sluicegate.refuse('SG005', 'job_days', 'Only an administrator keeps less than 30 days, 500,000 jobs or 45 days of attempts.',
            'Call it without arguments, or ask a member of sluicegate_admin.');
    end if;

    with old as (
        select j.id
        from sluicegate.queue q
        cross join lateral (
            select c.id from sluicegate.job c
            where c.queue_id = q.id and c.state in ('done', 'failed', 'cancelled')
                and c.finished_at < v_now - make_interval(days => p_job_days)
            order by c.finished_at, c.id
            limit p_limit
            for update skip locked
        ) j
        limit p_limit
    )
    delete from sluicegate.job j using old where j.id = old.id;
    get diagnostics v_jobs = row_count;

    v_surplus := sluicegate.prune_surplus(p_keep_jobs, p_limit);

    -- An attempt is closed history when it has ended; the open one of a live job stays.
    with old as (
        select a.job_id, a.seq, a.id
        from sluicegate.queue q
        cross join lateral (
            select c.job_id, c.seq, c.id
            from sluicegate.attempt c
            where c.queue_id = q.id and c.opened_at < v_now - make_interval(days => p_attempt_days)
                and exists (select from sluicegate.attempt_end e where e.attempt_id = c.id offset 0)
            order by c.opened_at
            limit p_limit
            for update skip locked
        ) a
        limit p_limit
    ), ends as (
        delete from sluicegate.attempt_end e using old where e.attempt_id = old.id
    ), gone as (
        delete from sluicegate.attempt a using old where a.job_id = old.job_id and a.seq = old.seq
        returning a.queue_id, date_trunc('minute', a.opened_at, 'UTC') as minute
    ), counted as (
        insert into sluicegate.attempt_count as c (queue_id, minute, attempts)
        select g.queue_id, g.minute, count(*) from gone g group by g.queue_id, g.minute order by g.queue_id, g.minute
        on conflict (queue_id, minute) do update set attempts = c.attempts + excluded.attempts
    )
    select count(*) into v_attempts from gone;
    -- As long as the use of a window that ended 400 days ago, and may have begun a month before, can be checked against it.
    delete from sluicegate.attempt_count c where c.ctid = any (array(
        select o.ctid from sluicegate.attempt_count o where o.minute < v_now - interval '432 days'
        order by o.minute limit p_limit for update skip locked));
    get diagnostics v_counts = row_count;

    delete from sluicegate.request r where r.ctid = any (array(
        select o.ctid from sluicegate.request o where o.created_at < v_now - interval '24 hours' limit p_limit for update skip locked));
    get diagnostics v_requests = row_count;
    delete from sluicegate.late_call l where l.ctid = any (array(
        select o.ctid from sluicegate.late_call o where o.last_at < v_now - make_interval(days => p_attempt_days)
        limit p_limit for update skip locked));
    get diagnostics v_late = row_count;
    v_budgets := sluicegate.prune_budgets(v_now, p_limit);
    return jsonb_build_object('jobs', v_jobs + v_surplus, 'attempts', v_attempts, 'attempt_counts', v_counts, 'requests', v_requests,
        'late_calls', v_late, 'usage', v_budgets.usage, 'forgiven', v_budgets.forgiven, 'refusals', v_budgets.refusals,
        'audit', v_budgets.audit, 'windows', v_budgets.windows);
end
$$;

-- Why a job does not run and when it will: its state, its queue's verdict with every closed gate, its position among those that wait,
-- when it is expected to start if nothing changes, what was charged for its retries, the command that would admit it now, and, while the
-- in-flight limit is full, up to ten who hold its places.
-- Takes no lock. Raises SG001, SG002.
-- grants: worker, reader
create or replace function sluicegate.explain(p_job_id bigint, p_scope text default 'endpoint:default') returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_now timestamptz := sluicegate.clock();
    v_job sluicegate.job;
    v_queue record;
    v_verdict jsonb;
    v_waits text;
    v_ahead bigint;
    v_fresh bigint;
    v_counted boolean;
    v_expected timestamptz;
    v_exact boolean;
    v_command text;
    v_due sluicegate.job;
    v_paused_reason text;
begin
    select j.* into v_job from sluicegate.job j where j.id = p_job_id and j.scope_id = v_scope_id;
    if not found then
        return sluicegate.job_not_found(p_job_id);
    end if;
    select q.name, q.governed into v_queue from sluicegate.queue q where q.id = v_job.queue_id;
    v_verdict := sluicegate.verdict(v_job.queue_id);
    v_waits := case
        when exists (select from sluicegate.waiting_jobs(array[v_job.id], v_now)) then 'admission'
        when v_job.state = 'scheduled' then 'run_at'
        -- Nobody takes it over: its attempts are spent, or it is to be cancelled.
        when v_job.state = 'claimed' and v_job.lease_expires_at <= v_now then 'end'
        when v_job.state = 'claimed' then 'running'
        else 'ended'
    end;
    if v_waits = 'admission' then
        select p.ahead, p.fresh, p.exact into v_ahead, v_fresh, v_counted from sluicegate.job_position(v_job, v_now) p;
        select e.at, e.exact and v_counted into v_expected, v_exact
        from sluicegate.expected_at(v_job.queue_id, v_verdict, v_ahead, v_fresh, v_job.state = 'claimed', v_now) e;
        -- No number can be named when those before it could not be counted.
        v_command := case when v_counted then
            sluicegate.admitting_command(v_queue.name, p_scope, v_verdict, v_ahead, v_fresh, v_job.state = 'claimed') end;
    elsif v_waits = 'run_at' then
        -- Who else will wait by then is not known.
        select e.at, e.exact and not v_queue.governed into v_expected, v_exact
        from sluicegate.expected_at(v_job.queue_id, v_verdict, 0, 0, false, v_job.run_at) e;
        -- As it would stand if it were due: in a closed queue retry alone starts nothing.
        v_due := v_job;
        v_due.state := 'pending';
        v_due.run_at := v_now;
        select sluicegate.admitting_command(v_queue.name, p_scope, v_verdict, p.ahead, p.fresh, false) into v_command
        from sluicegate.job_position(v_due, v_now) p where p.exact;
        if v_command is not null or v_verdict ->> 'state' = 'admitted' then
            v_command := concat_ws(' && ', v_command, concat_ws(' ', 'sluicegate retry', p_job_id,
                '--scope ' || nullif(coalesce(p_scope, 'endpoint:default'), 'endpoint:default')));
        end if;
    end if;
    -- A statement of its own: a policy that cannot be read is told by the verdict.
    if v_verdict -> 'all' @> '[{"gate": "pause"}]' then
        select p.paused_reason into v_paused_reason from sluicegate.policy p where p.queue_id = v_job.queue_id;
    end if;
    return jsonb_build_object(
        'status', 'ok', 'job', sluicegate.job_row(v_job.id) || jsonb_build_object('admission',
            case when v_waits = 'admission' then sluicegate.admission_status_of(v_verdict) end), 'waits_for', v_waits,
        'verdict', v_verdict - 'gates', 'gates', v_verdict -> 'gates', 'governed', v_queue.governed,
        'position', v_ahead, 'position_exact', v_counted, 'expected_at', v_expected, 'expected_exact', v_exact,
        'charged', v_job.attempts_total, 'charged_for_retries', greatest(v_job.attempts_total - 1, 0),
        'holders', case
            when v_verdict -> 'all' @> '[{"gate": "in_flight"}]' then sluicegate.holders(v_job.queue_id, 10)
            else '[]'::jsonb
        end,
        'paused_reason', v_paused_reason, 'command', v_command, 'server_time', v_now);
end
$$;

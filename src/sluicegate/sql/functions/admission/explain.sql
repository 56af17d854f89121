-- Why a job does not run and when it will: its state, its queue's verdict with every closed gate, its position among those that wait,
-- the expected window if nothing changes, what was charged for its retries, and the command that would admit it now.
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
    v_position bigint;
    v_command text;
begin
    select j.* into v_job from sluicegate.job j where j.id = p_job_id and j.scope_id = v_scope_id;
    if not found then
        return sluicegate.job_not_found(p_job_id);
    end if;
    select q.name, q.governed into v_queue from sluicegate.queue q where q.id = v_job.queue_id;
    v_waits := case
        when v_job.state = 'pending' or (v_job.state = 'scheduled' and v_job.run_at <= v_now) then 'admission'
        when v_job.state = 'scheduled' then 'run_at'
        when v_job.state = 'claimed' and v_job.lease_expires_at <= v_now and v_job.attempt < v_job.max_attempts
            and v_job.cancel_requested_at is null then 'admission'
        when v_job.state = 'claimed' then 'running'
        else 'ended'
    end;
    v_verdict := case when v_queue.governed then sluicegate.verdict(v_job.queue_id)
        else '{"state": "admitted", "reason": null, "next_eligible_at": null, "exact": true, "all": [], "gates": []}'::jsonb end;
    if v_waits = 'admission' then
        select least(count(*), 1000) into v_position
        from (
            (select from sluicegate.job j
            where j.queue_id = v_job.queue_id and j.class = v_job.class and j.state = 'pending'
                and (j.priority, j.run_at, j.id) < (v_job.priority, v_job.run_at, v_job.id)
            limit 1001)
            union all
            (select from sluicegate.due_heads(v_job.queue_id, v_job.class, v_now, 1001) d
            where (d.priority, d.run_at, d.id) < (v_job.priority, v_job.run_at, v_job.id))
            limit 1001
        ) a;
    end if;
    v_command := case
        when v_waits = 'run_at' then format('sluicegate retry %s', p_job_id)
        when v_waits <> 'admission' or v_verdict ->> 'state' = 'admitted' then null
        when v_verdict ->> 'reason' = 'paused' and exists (
            select from jsonb_array_elements(v_verdict -> 'all') g where g ->> 'gate' = 'pause'
        ) then format('sluicegate queue budget resume %s', v_queue.name)
        when v_verdict ->> 'reason' = 'admission_unavailable' then 'sluicegate doctor'
        else (
            select format('sluicegate queue budget set %s %s', v_queue.name, string_agg(
                case when g ->> 'gate' = 'in_flight' then format('--max-in-flight %s', (g ->> 'used')::bigint + 1)
                    else format('--per-%s %s', g ->> 'period', (g ->> 'used')::bigint + 1 + v_position) end, ' '))
            from jsonb_array_elements(v_verdict -> 'all') g where g ->> 'gate' in ('window', 'in_flight')
        )
    end;
    return jsonb_build_object(
        'status', 'ok', 'job', sluicegate.job_row(v_job.id) || jsonb_build_object('admission',
            case when v_waits = 'admission' then sluicegate.admission_status_of(v_verdict) end), 'waits_for', v_waits,
        'verdict', v_verdict - 'gates', 'gates', v_verdict -> 'gates', 'governed', v_queue.governed,
        'position', v_position, 'position_exact', v_position < 1000,
        'expected_at', case
            when v_waits = 'run_at' then v_job.run_at
            when v_waits = 'admission' and v_queue.governed and v_verdict ->> 'reason' is distinct from 'admission_unavailable'
                and v_verdict ->> 'reason' is distinct from 'paused'
                then sluicegate.expected_window(v_job.queue_id, v_position, v_now)
        end,
        'charged', v_job.attempts_total, 'charged_for_retries', greatest(v_job.attempts_total - 1, 0),
        'command', v_command, 'server_time', v_now);
end
$$;

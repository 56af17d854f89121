-- Answers a finish whose token is not the job's current one: ok and replayed if an attempt ended just so with that
-- token; else a conflict, which is recorded; not_found for a job that is absent or another scope's, alike.
-- grants: none
create or replace function sluicegate.finish_replay(p_job_id bigint, p_scope_id bigint, p_token_hash bytea, p_outcome text)
returns jsonb
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_job record;
    v_end record;
begin
    select j.id, j.state, j.run_at, j.attempt, j.max_attempts into v_job
    from sluicegate.job j where j.id = p_job_id and j.scope_id = p_scope_id;
    if not found then
        return sluicegate.job_not_found(p_job_id);
    end if;
    select e.outcome, e.disposition, e.ended_at into v_end
    from sluicegate.attempt a join sluicegate.attempt_end e on e.attempt_id = a.id
    where a.job_id = p_job_id and e.lease_token_hash = p_token_hash;
    -- A holder that was told of the cancellation ends its attempt as failed or released; it is recorded as cancelled.
    if v_end.outcome = p_outcome or (v_end.outcome = 'cancelled' and p_outcome in ('failed', 'released', 'cancelled')) then
        return jsonb_build_object('job_id', p_job_id, 'status', 'ok', 'replayed', true, 'state', v_job.state,
            'dead_letter', v_job.state = 'failed', 'run_at', v_job.run_at, 'attempt', v_job.attempt,
            'max_attempts', v_job.max_attempts, 'message', null);
    end if;
    perform sluicegate.record_late_call(p_job_id, p_token_hash, p_outcome);
    return jsonb_build_object('job_id', p_job_id, 'status', 'conflict', 'replayed', false, 'state', v_job.state,
        'dead_letter', v_job.state = 'failed', 'run_at', v_job.run_at, 'attempt', v_job.attempt,
        'max_attempts', v_job.max_attempts, 'message', case
            when v_end.outcome is not null then format(
                'The attempt of this lease token already ended at %s as %s (%s). Nothing was changed.',
                to_char(v_end.ended_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), v_end.outcome, v_end.disposition)
            else format(
                'Job %s is %s and this lease token does not hold it. Nothing was changed. Stop working on it, or claim it anew.',
                p_job_id, v_job.state)
        end);
end
$$;

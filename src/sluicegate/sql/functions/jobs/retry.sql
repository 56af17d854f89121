-- Makes a failed, cancelled or waiting job pending now, with its attempt counter at 0 (its attempts stay on record and the
-- next claim is a new one). Waits for the job's row, each time for at most 10 s. A conflict names the live job that has its dedup key. Raises SG002.
-- grants: worker
create or replace function sluicegate.retry(p_job_id bigint, p_scope text default 'endpoint:default') returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set jit = off
set enable_seqscan = off
set lock_timeout = '10s'
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_job record;
    v_other bigint;
begin
    perform sluicegate.wait_briefly();
    select j.state, j.dedup_key, j.queue_id into v_job
    from sluicegate.job j where j.id = p_job_id and j.scope_id = v_scope_id for no key update;
    if not found then
        return sluicegate.job_not_found(p_job_id);
    end if;
    if v_job.state not in ('failed', 'cancelled', 'scheduled') then
        return jsonb_build_object('job_id', p_job_id, 'status', 'conflict', 'state', v_job.state, 'message', format(
            'Job %s is %s: only a failed, cancelled or scheduled job can be retried now.', p_job_id, v_job.state));
    end if;
    loop
        begin
            update sluicegate.job j
            set state = 'pending', run_at = sluicegate.clock(), attempt = 0, result = null, error = null, finished_at = null,
                cancel_requested_at = null
            where j.id = p_job_id;
            exit;
        exception
            when unique_violation then
                select j.id into v_other
                from sluicegate.job j
                where j.scope_id = v_scope_id and j.dedup_key = v_job.dedup_key
                    and j.state in ('scheduled', 'pending', 'claimed');
                -- Not found: it has just ended, and the key is free again.
                if found then
                    return jsonb_build_object('job_id', p_job_id, 'status', 'conflict', 'state', v_job.state,
                        'conflicting_job_id', v_other, 'message', format(
                            'Job %s was not retried: live job %s has the same dedup_key %L. Cancel that one first, or let it run.',
                            p_job_id, v_other, v_job.dedup_key));
                end if;
        end;
    end loop;
    perform sluicegate.ready_below(array[p_job_id]);
    perform sluicegate.wake_workers(array[v_job.queue_id]);
    return jsonb_build_object('job_id', p_job_id, 'status', 'ok', 'state', 'pending', 'message', null);
end
$$;

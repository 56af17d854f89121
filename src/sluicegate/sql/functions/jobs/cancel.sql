-- Cancels a job: at once when nobody holds it, else its holder learns at the next heartbeat and ends it. Cancelling
-- twice is fine. Waits for the job's row, each time for at most 10 s. Raises SG001, SG002.
-- grants: worker
create or replace function sluicegate.cancel(p_job_id bigint, p_reason text default null, p_scope text default 'endpoint:default')
returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set jit = off
set enable_seqscan = off
set lock_timeout = '10s'
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_now timestamptz;
    v_state text;
    v_lapsed boolean;
begin
    perform sluicegate.wait_briefly();
    if octet_length(p_reason) > 65536 then
        perform sluicegate.refuse('SG001', 'reason', 'The reason is over 64 KiB long.', 'Shorten it.');
    end if;
    select j.state into v_state
    from sluicegate.job j where j.id = p_job_id and j.scope_id = v_scope_id for no key update;
    if not found then
        return sluicegate.job_not_found(p_job_id);
    end if;
    v_now := sluicegate.clock();
    if v_state in ('scheduled', 'pending') then
        update sluicegate.job j
        set state = 'cancelled', finished_at = v_now, cancel_requested_at = v_now, error = p_reason
        where j.id = p_job_id;
        v_state := 'cancelled';
    elsif v_state = 'claimed' then
        update sluicegate.job j
        set cancel_requested_at = coalesce(j.cancel_requested_at, v_now), error = coalesce(p_reason, j.error)
        where j.id = p_job_id
        returning j.lease_expires_at <= v_now into v_lapsed;
        if v_lapsed then
            perform sluicegate.end_lapsed(array[p_job_id], v_now);
            v_state := 'cancelled';
        end if;
    elsif v_state <> 'cancelled' then
        return jsonb_build_object('job_id', p_job_id, 'status', 'conflict', 'state', v_state, 'cancel_requested', false,
            'message', format('Job %s is already %s: there is nothing to cancel.', p_job_id, v_state));
    end if;
    return jsonb_build_object('job_id', p_job_id, 'status', 'ok', 'state', v_state, 'cancel_requested', true,
        'message', case when v_state = 'claimed' then
            'Its worker holds it and is told at its next heartbeat; it ends then, or when the lease runs out.' end);
end
$$;

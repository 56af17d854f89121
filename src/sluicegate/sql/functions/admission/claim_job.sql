-- Claims one job by its id: pending, due, or lapsed with attempts left. Waits for the job's row, since it holds nothing
-- else. Answers ok with the claim, conflict, deferred, busy or not_found. Raises SG001, SG002, SG003, SG004.
-- grants: worker
create or replace function sluicegate.claim_job(
    p_job_id bigint, p_lease_seconds integer default null, p_worker text default null, p_request_id text default null,
    p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set jit = off
set enable_seqscan = off
set lock_timeout = '10s'
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_lease integer := sluicegate.lease_seconds(to_jsonb(p_lease_seconds), v_scope_id);
    v_body jsonb := jsonb_build_object('job_id', p_job_id, 'lease_seconds', p_lease_seconds);
    v_kept jsonb;
    v_now timestamptz;
    v_job sluicegate.job;
    v_claims json;
    v_why text;
    v_admitted record;
    v_deferral jsonb;
begin
    perform sluicegate.begin_claim();
    perform sluicegate.wait_briefly();
    perform sluicegate.check_worker(p_worker);
    if p_request_id is not null then
        v_kept := sluicegate.request_replay(v_scope_id, p_request_id, 'claim_job', v_body);
        if v_kept is not null then
            v_claims := sluicegate.claim_replay(v_kept, v_lease) -> 'claims';
            if json_array_length(v_claims) > 0 then
                return jsonb_build_object('status', 'ok', 'replayed', true, 'claim', v_claims -> 0, 'server_time', sluicegate.clock());
            end if;
        end if;
    end if;

    if sluicegate.holds_lanes() then
        select j.* into v_job from sluicegate.job j where j.id = p_job_id and j.scope_id = v_scope_id for no key update skip locked;
        if not found and exists (select from sluicegate.job j where j.id = p_job_id and j.scope_id = v_scope_id) then
            return jsonb_build_object('job_id', p_job_id, 'status', 'busy', 'message', format(
                'Job %s is held by another transaction, and this one has claimed already. Ask again in a moment.', p_job_id));
        end if;
    else
        select j.* into v_job from sluicegate.job j where j.id = p_job_id and j.scope_id = v_scope_id for no key update;
    end if;
    if v_job.id is null then
        return sluicegate.job_not_found(p_job_id);
    end if;
    v_now := sluicegate.clock();
    if v_job.state = 'claimed' and v_job.lease_expires_at <= v_now
        and (v_job.attempt >= v_job.max_attempts or v_job.cancel_requested_at is not null)
    then
        perform sluicegate.end_lapsed(array[p_job_id], v_now);
        select j.* into v_job from sluicegate.job j where j.id = p_job_id;
    end if;
    v_why := case
        when v_kept is not null then 'the claim of this request_id has ended'
        when v_job.state = 'claimed' and v_job.lease_expires_at > v_now then
            format('it is claimed until %s', to_char(v_job.lease_expires_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'))
        when v_job.state = 'scheduled' and v_job.run_at > v_now then
            format('it is scheduled for %s', to_char(v_job.run_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'))
        when v_job.state in ('done', 'failed', 'cancelled') then format('it is %s', v_job.state)
    end;
    if v_why is not null then
        return jsonb_build_object('job_id', p_job_id, 'status', 'conflict', 'state', v_job.state,
            'message', format('Job %s cannot be claimed: %s.', p_job_id, v_why));
    end if;
    if (select q.governed from sluicegate.queue q where q.id = v_job.queue_id) then
        -- Before any lane is taken.
        perform sluicegate.end_spent(v_job.queue_id, v_now);
        v_admitted := sluicegate.admit(v_job.queue_id, array[p_job_id], v_job.state = 'claimed', v_job.lane, true);
        if cardinality(v_admitted.ids) = 0 then
            v_deferral := case
                -- A policy that was cleared meanwhile closes nothing.
                when v_admitted.state not in ('busy', 'held') and (select q.governed from sluicegate.queue q where q.id = v_job.queue_id)
                    then sluicegate.deferral(v_job.queue_id, v_now, v_admitted.verdict, v_job.state <> 'claimed') end;
            return jsonb_build_object('job_id', p_job_id, 'state', v_job.state, 'deferred', v_deferral)
                || case
                    when v_deferral is null then jsonb_build_object('status', 'busy', 'message', format(
                        'Job %s could not be decided just now: others hold its queue, or its first policy is not open yet. Ask again in a moment.', p_job_id))
                    else jsonb_build_object('status', 'deferred', 'message', format(
                        'Job %s is deferred: %s.', p_job_id, replace(v_deferral ->> 'reason', '_', ' ')))
                end;
        end if;
        v_claims := (sluicegate.open_claims(
            v_admitted.ids, array[v_admitted.at], v_admitted.lanes, v_job.state = 'claimed', v_lease, p_worker)).claims;
    else
        v_claims := (sluicegate.open_claims(
            array[p_job_id], array[sluicegate.clock()], array[null::smallint], v_job.state = 'claimed', v_lease, p_worker)).claims;
    end if;
    if p_request_id is not null then
        perform sluicegate.request_keep(v_scope_id, p_request_id, 'claim_job', v_body,
            jsonb_build_array(jsonb_build_object('job_id', p_job_id, 'attempt_id', v_claims -> 0 -> 'attempt_id')));
    end if;
    return jsonb_build_object('status', 'ok', 'replayed', false, 'claim', v_claims -> 0, 'server_time', sluicegate.clock());
end
$$;

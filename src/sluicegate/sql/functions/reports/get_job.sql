-- One job whole, with its newest attempts, and its admission status while it waits. Takes no lock. Raises SG001, SG002.
-- grants: worker, reader
create or replace function sluicegate.get_job(
    p_job_id bigint, p_attempts_limit integer default 20, p_scope text default 'endpoint:default'
) returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_job sluicegate.job;
begin
    if p_attempts_limit is null or p_attempts_limit not between 0 and 50 then
        perform sluicegate.refuse('SG001', 'attempts_limit', 'At most 50 attempts of a job are shown.', 'Ask for 0 to 50.');
    end if;
    select j.* into v_job from sluicegate.job j where j.id = p_job_id and j.scope_id = v_scope_id;
    if not found then
        return sluicegate.job_not_found(p_job_id);
    end if;
    return jsonb_build_object(
        'status', 'ok',
        'job', sluicegate.job_row(v_job.id) || jsonb_build_object(
            'admission', (select a.admission from sluicegate.job_admissions(array[v_job.id], sluicegate.clock()) a),
            'payload', v_job.payload, 'result', v_job.result, 'backoff', v_job.backoff),
        'attempts', (
            select coalesce(jsonb_agg(to_jsonb(a) order by a.seq desc), '[]')
            from (
                select a.id, a.seq, a.attempt, a.opened_at, a.worker, e.ended_at, e.outcome, e.disposition, e.started, e.account, e.error,
                    e.summary
                from sluicegate.attempt a left join sluicegate.attempt_end e on e.attempt_id = a.id
                where a.job_id = p_job_id
                order by a.seq desc
                limit p_attempts_limit
            ) a
        ));
end
$$;

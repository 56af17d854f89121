-- Extends many leases at once, one answer each in input order. Those that another transaction holds are left out and
-- answered unavailable, so that nothing holds up the others, or the caller. A superseded token is a conflict, and
-- recorded. Raises SG001, SG002.
-- grants: worker
create or replace function sluicegate.heartbeat_many(p_items jsonb, p_scope text default 'endpoint:default') returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set jit = off
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '10s'
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_ids bigint[];
    v_left_out bigint[];
    v_now timestamptz;
    v_answers jsonb;
begin
    perform sluicegate.wait_briefly();
    perform sluicegate.check_heartbeats(p_items);
    v_ids := array(select (e ->> 'job_id')::bigint from jsonb_array_elements(p_items) e);
    v_left_out := array(select j.id from sluicegate.job j where j.id = any (v_ids) and j.scope_id = v_scope_id);
    v_ids := array(
        select l.id from (
            select j.id from sluicegate.job j
            where j.id = any (v_ids) and j.scope_id = v_scope_id
            order by j.id
            for no key update skip locked
        ) l
    );
    v_left_out := array(select o from unnest(v_left_out) o where o <> all (v_ids));
    v_now := sluicegate.clock();
    with item as materialized (
        select i.ord, i.job_id, sha256(convert_to(i.lease_token, 'UTF8')) as token_hash, i.lease_seconds::integer as lease_seconds,
            coalesce(i.shorten, false) as shorten, i.note
        from rows from (jsonb_to_recordset(p_items) as (
            job_id bigint, lease_token text, lease_seconds numeric, shorten boolean, note text
        )) with ordinality as i(job_id, lease_token, lease_seconds, shorten, note, ord)
    ), held as materialized (
        select distinct on (i.job_id) i.*, v_now + make_interval(secs => coalesce(i.lease_seconds, j.lease_seconds)) as until
        from item i cross join lateral (select * from sluicegate.job j where j.id = i.job_id offset 0) j
        where j.scope_id = v_scope_id and j.state = 'claimed' and j.lease_token_hash = i.token_hash
            and j.id <> all (v_left_out)
        order by i.job_id, i.ord desc
    ), renewed as (
        update sluicegate.job j
        set lease_expires_at = case when h.shorten then h.until else greatest(j.lease_expires_at, h.until) end,
            lease_seconds = case when h.shorten then coalesce(h.lease_seconds, j.lease_seconds)
                else greatest(h.lease_seconds, j.lease_seconds) end,
            note = coalesce(h.note, j.note)
        from held h
        where j.id = h.job_id
        returning j.id, h.token_hash, j.lease_expires_at, j.cancel_requested_at is not null as cancelled
    )
    select jsonb_agg(case
            when r.id is not null then jsonb_build_object('job_id', i.job_id, 'status', 'ok',
                'lease_expires_at', r.lease_expires_at, 'cancelled', r.cancelled, 'message', null)
            when i.job_id = any (v_left_out) then jsonb_build_object('job_id', i.job_id, 'status', 'unavailable',
                'lease_expires_at', null, 'cancelled', false, 'message', format(
                    'Another transaction holds job %s, so nothing was changed. Send this heartbeat again.', i.job_id))
            else sluicegate.heartbeat_refused(i.job_id, v_scope_id, i.token_hash)
        end order by i.ord)
    into v_answers
    from item i left join renewed r on r.id = i.job_id and r.token_hash = i.token_hash;
    return jsonb_build_object('heartbeats', v_answers, 'server_time', v_now);
end
$$;

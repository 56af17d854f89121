-- Who holds a queue's places: up to p_limit of its claimed jobs, the one whose lease ends first in front. Takes no lock.
-- grants: none
create or replace function sluicegate.holders(p_queue_id bigint, p_limit integer) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return (
        select coalesce(jsonb_agg(jsonb_build_object('job_id', h.id, 'kind', h.kind, 'worker', h.worker, 'claimed_at', h.claimed_at,
            'lease_expires_at', h.lease_expires_at) order by h.lease_expires_at, h.id), '[]')
        from (
            select j.id, j.kind, j.worker, j.claimed_at, j.lease_expires_at
            from sluicegate.job j
            where j.queue_id = p_queue_id and j.state = 'claimed'
            order by j.lease_expires_at
            limit p_limit
        ) h
    );
end
$$;

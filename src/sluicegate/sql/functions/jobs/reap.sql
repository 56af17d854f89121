-- Ends lapsed claims: back to pending, a dead letter at the attempt cap, or cancelled. The claim does not depend on it;
-- it keeps figures honest where nobody claims. SKIP LOCKED: never waits. At most p_limit jobs,
-- of one scope or of all. Raises SG001, SG002.
-- grants: worker
create or replace function sluicegate.reap(p_limit integer default 1000, p_scope text default null) returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_now timestamptz := sluicegate.clock();
    v_scope_id bigint := case when p_scope is not null then sluicegate.scope_id(p_scope) end;
    v_ids bigint[];
    v_ended record;
begin
    if p_limit is null or p_limit not between 1 and 100000 then
        perform sluicegate.refuse('SG001', 'limit', 'One call reaps 1 to 100,000 jobs.', 'Call it again for more.');
    end if;
    select array_agg(l.id) into v_ids
    from (
        select j.id
        from sluicegate.job j
        where j.id = any (array(
                select h.id
                from sluicegate.queue q
                cross join lateral (
                    select c.id from sluicegate.job c
                    where c.queue_id = q.id and c.state = 'claimed' and c.lease_expires_at <= v_now
                    order by c.lease_expires_at
                    limit p_limit
                ) h
                where v_scope_id is null or q.scope_id = v_scope_id
                limit p_limit
            ))
            -- Joined with '', so that no partial index seems to fit: it would be read whole.
            and j.state || '' = 'claimed' and j.lease_expires_at <= v_now
        order by j.id
        for no key update skip locked
    ) l;
    v_ended := sluicegate.end_lapsed(coalesce(v_ids, '{}'), v_now);
    return jsonb_build_object('requeued', v_ended.requeued, 'dead_lettered', v_ended.dead_lettered,
        'cancelled', v_ended.cancelled);
end
$$;

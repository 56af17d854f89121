-- How many jobs each queue of a scope has in each state, and its oldest due one. due counts scheduled jobs whose time
-- has come, lapsed the claims without a live lease. Each figure counts to 100,000 and stops there. Takes no lock.
-- grants: worker, reader
create or replace function sluicegate.queue_stats(p_scope text default 'endpoint:default') returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_now timestamptz := sluicegate.clock();
    v_most integer := 100000;
begin
    return jsonb_build_object('server_time', v_now, 'counted_to', v_most, 'queues', (
        select coalesce(jsonb_agg(jsonb_build_object('queue', q.name, 'oldest_pending_at', (
                select min(h.run_at) from (
                    select j.run_at from sluicegate.job j where j.queue_id = q.id and j.state = 'pending' limit v_most
                ) h
            )) || c.counts order by q.name), '[]')
        from sluicegate.queue q
        cross join lateral (
            select jsonb_object_agg(s.name, (
                select count(*) from (
                    select from sluicegate.job j
                    where j.queue_id = q.id and j.state = s.state
                        and (s.name <> 'due' or j.run_at <= v_now)
                        and (s.name <> 'lapsed' or j.lease_expires_at <= v_now)
                    limit v_most
                ) n
            )) as counts
            from (values ('scheduled', 'scheduled'), ('due', 'scheduled'), ('pending', 'pending'), ('claimed', 'claimed'),
                ('lapsed', 'claimed'), ('done', 'done'), ('failed', 'failed'), ('cancelled', 'cancelled')) as s(name, state)
        ) c
        where q.scope_id = v_scope_id
    ));
end
$$;

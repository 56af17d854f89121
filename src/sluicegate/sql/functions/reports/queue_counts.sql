-- How many jobs a queue has in each state: due counts the scheduled ones whose time has come, lapsed the claims without a live lease. Each
-- figure counts to p_most, and inexact names those of which there are more; done is counted among the last 3 * p_most or so that have ended.
-- grants: none
create or replace function sluicegate.queue_counts(p_queue_id bigint, p_now timestamptz, p_most integer) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_counts jsonb;
    v_ended record;
begin
    select count(*) as jobs, count(*) filter (where e.state = 'done') as done into v_ended
    from (
        select j.state from sluicegate.job j
        where j.queue_id = p_queue_id and j.state in ('done', 'failed', 'cancelled')
        order by j.finished_at desc, j.id desc
        limit 3 * p_most + 4
    ) e;
    v_counts := jsonb_build_object(
        'scheduled', (select count(*) from (
            select from sluicegate.job j where j.queue_id = p_queue_id and j.state = 'scheduled' limit p_most + 1) n),
        'due', (select count(*) from (
            select from unnest('{alert,p1,mid,low}'::text[]) c
            cross join lateral sluicegate.due_heads(p_queue_id, c, p_now, p_most + 1) limit p_most + 1) n),
        'pending', (select count(*) from (
            select from sluicegate.job j where j.queue_id = p_queue_id and j.state = 'pending' limit p_most + 1) n),
        'claimed', (select count(*) from (
            select from sluicegate.job j where j.queue_id = p_queue_id and j.state = 'claimed' limit p_most + 1) n),
        'lapsed', (select count(*) from (
            select from sluicegate.job j
            where j.queue_id = p_queue_id and j.state = 'claimed' and j.lease_expires_at <= p_now limit p_most + 1) n),
        'failed', (select count(*) from (
            select from sluicegate.job j where j.queue_id = p_queue_id and j.state = 'failed' limit p_most + 1) n),
        'cancelled', (select count(*) from (
            select from sluicegate.job j where j.queue_id = p_queue_id and j.state = 'cancelled' limit p_most + 1) n),
        'done', v_ended.done);
    return (
        select jsonb_object_agg(c.key, least(c.value::bigint, p_most)) || jsonb_build_object('inexact', coalesce(
            jsonb_agg(c.key order by c.key) filter (
                where c.value::bigint > p_most or (c.key = 'done' and v_ended.jobs > 3 * p_most + 3)), '[]'))
        from jsonb_each_text(v_counts) c
    );
end
$$;

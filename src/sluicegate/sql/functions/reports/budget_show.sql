-- A queue's budget as its owner asks for it: policy, use of every limit, verdict, backlog with its oldest, next boundary, what retries
-- were charged, refusals by reason, what shadow limits would have refused, and the last 30 windows of each limit. Takes no lock.
-- Raises SG001, SG002.
-- grants: worker, reader
create or replace function sluicegate.budget_show(p_queue text, p_scope text default 'endpoint:default') returns jsonb
language plpgsql stable security definer
set search_path = sluicegate, pg_temp
as $$
declare
    v_scope_id bigint := sluicegate.scope_id(p_scope);
    v_now timestamptz := sluicegate.clock();
    v_queue_id bigint;
    v_status jsonb;
    v_since timestamptz;
begin
    v_queue_id := sluicegate.known_queue(v_scope_id, p_queue);
    v_status := coalesce(sluicegate.policy_status(v_queue_id), jsonb_build_object('queue', p_queue, 'status',
        'ungoverned', 'limits', '[]'::jsonb, 'gates', '[]'::jsonb));
    v_since := coalesce((select min((g ->> 'starts')::timestamptz) from jsonb_array_elements(v_status -> 'gates') g),
        date_trunc('day', v_now, 'UTC'));
    return v_status || jsonb_build_object(
        'scope', p_scope, 'server_time', v_now,
        'backlog', (select jsonb_build_object('pending', c.pending, 'exact', c.exact) from sluicegate.pending_count(v_queue_id, v_now) c),
        'oldest_pending_at', sluicegate.oldest_pending(v_queue_id, v_now),
        'next_boundary_at', (
            select min((g ->> 'until')::timestamptz) from jsonb_array_elements(v_status -> 'gates') g where g ->> 'gate' = 'window'),
        'charged_for_retries', sluicegate.charged_for_retries(v_queue_id, v_since),
        'counted_since', v_since,
        'refused', (
            select coalesce(jsonb_object_agg(r.reason, r.refused), '{}')
            from (
                select f.reason, sum(f.refused) as refused from sluicegate.refusal f
                where f.queue_id = v_queue_id and f.minute >= v_since
                group by f.reason
            ) r
        ),
        'shadow', sluicegate.shadow_report(v_queue_id, v_now),
        'forgiven', sluicegate.forgiven_now(v_queue_id, v_status -> 'gates'),
        'windows', sluicegate.past_windows(v_queue_id, v_now));
end
$$;

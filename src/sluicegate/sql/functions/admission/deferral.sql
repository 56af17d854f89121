-- The deferred entry of one queue, or null when it is admitted or nothing waits in it; p_verdict is one that need not be asked for
-- again, since finding out that a policy is locked away takes seconds.
-- grants: none
create or replace function sluicegate.deferral(p_queue_id bigint, p_now timestamptz, p_verdict jsonb default null) returns jsonb
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_verdict jsonb := coalesce(p_verdict, sluicegate.verdict(p_queue_id));
    v_count record;
begin
    if v_verdict ->> 'state' = 'admitted' then
        return null;
    end if;
    v_count := sluicegate.pending_count(p_queue_id, p_now);
    if v_count.pending = 0 then
        return null;
    end if;
    perform sluicegate.count_refusal(p_queue_id, v_verdict ->> 'reason');
    return jsonb_build_object(
        'queue', (select q.name from sluicegate.queue q where q.id = p_queue_id), 'reason', v_verdict -> 'reason',
        'pending', v_count.pending, 'pending_exact', v_count.exact, 'next_eligible_at', v_verdict -> 'next_eligible_at',
        'exact', v_verdict -> 'exact', 'all', v_verdict -> 'all');
end
$$;

-- The deferred entry of one queue, or null when it is admitted or nothing waits in it; p_verdict is one that need not be asked for
-- again, since finding out that a policy is locked away takes seconds. p_fresh: asked for a job that takes nothing over, which a full cap
-- refuses though the queue has a lapsed claim to be taken over.
-- grants: none
create or replace function sluicegate.deferral(p_queue_id bigint, p_now timestamptz, p_verdict jsonb default null, p_fresh boolean default false) returns jsonb
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_verdict jsonb := coalesce(p_verdict, sluicegate.verdict(p_queue_id));
    v_gate jsonb;
    v_count record;
begin
    if v_verdict ->> 'state' = 'admitted' then
        select g - 'closed' - 'mode' - 'starts' into v_gate
        from jsonb_array_elements(v_verdict -> 'gates') g
        where p_fresh and g ->> 'gate' = 'in_flight' and g ->> 'mode' = 'enforce' and (g ->> 'used')::bigint >= (g ->> 'limit')::bigint;
        if v_gate is null then
            return null;
        end if;
        v_verdict := jsonb_build_object('reason', 'in_flight_full', 'next_eligible_at', v_gate -> 'until', 'exact', false,
            'all', jsonb_build_array(v_gate));
    end if;
    v_count := sluicegate.pending_seen(p_queue_id, p_now);
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

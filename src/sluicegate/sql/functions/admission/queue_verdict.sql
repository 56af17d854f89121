-- The verdict on a queue, with or without a policy: without one all is admitted. Takes no lock.
-- grants: none
create or replace function sluicegate.queue_verdict(p_queue_id bigint) returns jsonb
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
begin
    if (select q.governed from sluicegate.queue q where q.id = p_queue_id) then
        return sluicegate.verdict(p_queue_id);
    end if;
    return '{"state": "admitted", "reason": null, "next_eligible_at": null, "exact": true, "all": [], "gates": []}'::jsonb;
end
$$;

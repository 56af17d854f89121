-- What every change of a policy takes first: the turn of the queue's editors, then all its lanes in order, so that no claim is in between.
-- p_keeps says that the change keeps limits as they are: then they have to be whole, or a limit that went missing would be taken
-- for one that never was. Raises SG003.
-- grants: none
create or replace function sluicegate.lock_policy(p_queue_id bigint, p_keeps boolean default false) returns void
language plpgsql
set search_path = sluicegate, pg_temp
as $$
begin
    perform sluicegate.wait_briefly();
    -- The queue's own row: an advisory lock is open to any login.
    perform 1 from sluicegate.queue q where q.id = p_queue_id for no key update;
    perform sluicegate.lock_lanes(p_queue_id);
    if p_keeps and (select q.governed from sluicegate.queue q where q.id = p_queue_id) then
        begin
            perform sluicegate.check_policy(p_queue_id);
        exception
            when others then
                perform sluicegate.refuse('SG003', 'policy', format('The policy of the queue cannot be evaluated: %s', sqlerrm),
                    'Set all its limits anew, or clear it. What was charged stays on record.');
        end;
    end if;
end
$$;

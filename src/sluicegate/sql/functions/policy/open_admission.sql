-- Opens a queue's first policy as soon as it may: when every claim that was in the air when it was committed has ended. To be called
-- after that commit; claims do the same. Answers the status, with what is used and under awaited who is still waited for.
-- Locks the queue's lanes in order. Raises SG001, SG002, SG004 unless READ COMMITTED.
-- grants: worker, admin
create or replace function sluicegate.open_admission(p_queue text, p_scope text default 'endpoint:default') returns jsonb
language plpgsql security definer
set search_path = sluicegate, pg_temp
set jit = off
set lock_timeout = '3s'
as $$
declare
    v_queue_id bigint;
begin
    perform sluicegate.begin_claim();
    v_queue_id := sluicegate.known_queue(sluicegate.scope_id(p_scope), p_queue);
    if exists (select from sluicegate.policy p where p.queue_id = v_queue_id and p.opening) then
        perform sluicegate.open_lanes(v_queue_id);
    end if;
    return coalesce(sluicegate.policy_status(v_queue_id), jsonb_build_object('queue', p_queue, 'status', 'ungoverned'));
end
$$;

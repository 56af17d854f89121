-- What every change of a policy takes first: the turn of the queue's editors, then all its lanes in order, so that no claim is in between.
-- grants: none
create or replace function sluicegate.lock_policy(p_queue_id bigint) returns void
language plpgsql
set search_path = sluicegate, pg_temp
set lock_timeout = '10s'
as $$
begin
    perform pg_advisory_xact_lock(sluicegate.request_key(p_queue_id, 'policy'));
    perform sluicegate.lock_lanes(p_queue_id);
end
$$;

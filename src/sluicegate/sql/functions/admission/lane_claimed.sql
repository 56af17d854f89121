-- In-flight use of one lane: derived, never stored. Call it in a statement later than the lane's lock.
-- grants: none
create or replace function sluicegate.lane_claimed(p_queue_id bigint, p_lane smallint) returns integer
language plpgsql volatile
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
begin
    return (
select count(*)::integer from sluicegate.job j
where j.queue_id = p_queue_id and j.lane = p_lane and j.state = 'claimed' and j.lane is not null
    );
end
$$;

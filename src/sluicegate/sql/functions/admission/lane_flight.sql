-- What one lane has in flight, counted, and the lowest attempt_id a later count need look at. Call it under the lane's lock, in a
-- statement after it: attempt ids are drawn under that lock, so every later claim of the lane has a higher one. Takes no lock.
-- grants: none
create or replace function sluicegate.lane_flight(
    p_queue_id bigint, p_lane smallint, p_low bigint, out claimed integer, out low bigint
)
language plpgsql
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_sort = off -- only job_flight has this order, whatever statistics say of the others
set plan_cache_mode = force_generic_plan
as $$
begin
    select count(*), min(f.attempt_id) into claimed, low
    from (
        select j.attempt_id from sluicegate.job j
        where j.queue_id = p_queue_id and j.lane = p_lane and j.state = 'claimed' and j.lane is not null and j.attempt_id >= p_low
        order by j.attempt_id
        offset 0
    ) f;
    if low is null then
        select s.last_value into low from sluicegate.attempt_id_seq s;
    end if;
end
$$;

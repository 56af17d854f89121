-- nontransactional
-- What a lane has in flight, counted under the lane's lock.
create index concurrently if not exists job_flight on sluicegate.job (queue_id, lane) where state = 'claimed' and lane is not null;

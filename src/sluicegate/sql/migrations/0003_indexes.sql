-- nontransactional
-- What a lane has in flight, counted under the lane's lock from lane.low on: dead entries of ended claims lie before it.
create index concurrently if not exists job_flight on sluicegate.job (queue_id, lane, attempt_id)
where state = 'claimed' and lane is not null;
-- What people ask for among so many done ones. A job is entered only when it ends so.
create index concurrently if not exists job_failed on sluicegate.job (queue_id, id) where state = 'failed';
create index concurrently if not exists job_cancelled on sluicegate.job (queue_id, id) where state = 'cancelled';
-- What retention deletes by its age.
create index concurrently if not exists usage_ends on sluicegate.usage (ends);
create index concurrently if not exists refusal_minute on sluicegate.refusal (minute);
create index concurrently if not exists policy_audit_at on sluicegate.policy_audit (at);
create index concurrently if not exists attempt_count_minute on sluicegate.attempt_count (minute);
create index concurrently if not exists late_call_last on sluicegate.late_call (last_at);

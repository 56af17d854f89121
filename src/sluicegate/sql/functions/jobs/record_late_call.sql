-- Records a call with a token that does not hold the job: one row a token and verb, at most 50 rows a job.
-- grants: none
create or replace function sluicegate.record_late_call(p_job_id bigint, p_token_hash bytea, p_verb text) returns void
language sql
set search_path = sluicegate, pg_temp
as $$
insert into sluicegate.late_call as l (job_id, token_hash, verb, first_at, last_at)
select p_job_id, p_token_hash, p_verb, n.now, n.now
from (select sluicegate.clock() as now) n
where (select count(*) from (select from sluicegate.late_call c where c.job_id = p_job_id limit 50) c) < 50
    or exists (select from sluicegate.late_call c where c.job_id = p_job_id and c.token_hash = p_token_hash and c.verb = p_verb)
on conflict (job_id, token_hash, verb) do update set last_at = excluded.last_at, calls = l.calls + 1
$$;

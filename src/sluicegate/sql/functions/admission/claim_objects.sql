-- The claim object of each job, the same from SQL to every face, in the order of p_ids.
-- grants: none
create or replace function sluicegate.claim_objects(p_ids bigint[], p_tokens text[]) returns jsonb
language sql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
as $$
select coalesce(jsonb_agg(
    jsonb_build_object(
        'job', jsonb_build_object(
            'id', j.id, 'queue', q.name, 'kind', j.kind, 'title', j.title, 'payload', j.payload, 'priority', j.priority,
            'tags', to_jsonb(j.tags), 'parent_id', j.parent_id, 'attempt', j.attempt, 'max_attempts', j.max_attempts),
        'attempt_id', j.attempt_id, 'attempt_seq', j.attempts_total, 'attempts_total', j.attempts_total,
        'prior_attempts', case when j.attempts_total = 1 then '[]'::jsonb else (
            select coalesce(jsonb_agg(to_jsonb(a) order by a.seq desc), '[]')
            from (
                select a.seq, a.opened_at, e.ended_at, e.outcome, e.disposition, e.error
                from sluicegate.attempt a join sluicegate.attempt_end e on e.attempt_id = a.id
                where a.job_id = j.id and a.seq < j.attempts_total
                order by a.seq desc
                limit 5
            ) a
        ) end,
        'lease_token', i.token, 'lease_expires_at', j.lease_expires_at, 'account', null, 'admission', null
    )
    order by i.ord
), '[]')
from unnest(p_ids, p_tokens) with ordinality as i(id, token, ord)
join sluicegate.job j on j.id = i.id and j.id = any (p_ids)
join sluicegate.queue q on q.id = j.queue_id
$$;

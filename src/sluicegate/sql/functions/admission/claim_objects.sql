-- The claim object of each job, the same from SQL to every face, in the order of p_ids.
-- grants: none
create or replace function sluicegate.claim_objects(p_ids bigint[], p_tokens text[], p_admissions jsonb default null) returns json
language plpgsql stable
set search_path = sluicegate, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return (
        select coalesce(json_agg(c), '[]')
        from (
            select (
                    select row_to_json(o)
                    from (
                        select j.id, (select q.name from sluicegate.queue q where q.id = j.queue_id) as queue, j.kind, j.title,
                            j.payload, j.priority, j.tags, j.parent_id, j.attempt, j.max_attempts
                    ) o
                ) as job,
                j.attempt_id, j.attempts_total as attempt_seq, j.attempts_total,
                case when j.attempts_total = 1 then '[]'::json else (
                    select coalesce(json_agg(a order by a.seq desc), '[]')
                    from (
                        select a.seq, a.opened_at, e.ended_at, e.outcome, e.disposition, e.error
                        from sluicegate.attempt a join sluicegate.attempt_end e on e.attempt_id = a.id
                        where a.job_id = j.id and a.seq < j.attempts_total
                        order by a.seq desc
                        limit 5
                    ) a
                ) end as prior_attempts,
                i.token as lease_token, j.lease_expires_at, null as account, p_admissions -> j.queue_id::text as admission
            from unnest(p_ids, p_tokens) with ordinality as i(id, token, ord)
            cross join lateral (select * from sluicegate.job j where j.id = i.id offset 0) j
            order by i.ord
        ) c
    );
end
$$;

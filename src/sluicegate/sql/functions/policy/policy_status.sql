-- A queue's policy with what is used of it and the verdict, null without a policy; opening while the claims that were in the air before
-- a first policy are awaited. Takes no lock.
-- grants: none
create or replace function sluicegate.policy_status(p_queue_id bigint) returns jsonb
language sql stable
set search_path = sluicegate, pg_temp
as $$
select d.document || jsonb_build_object(
    'queue', (select q.name from sluicegate.queue q where q.id = p_queue_id),
    'status', case v.verdict ->> 'state' when 'admitted' then 'admitted' else v.verdict ->> 'reason' end,
    'verdict', v.verdict - 'gates', 'gates', v.verdict -> 'gates',
    'opening', p.opening, 'awaited', case when p.opening then sluicegate.awaited_claims(p_queue_id) else '[]'::jsonb end)
from sluicegate.policy p, (select sluicegate.policy_document(p_queue_id) as document) d, (select sluicegate.verdict(p_queue_id) as verdict) v
where p.queue_id = p_queue_id
$$;

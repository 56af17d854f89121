-- A queue's policy with what is used of it and the verdict, null without a policy. Takes no lock.
-- grants: none
create or replace function sluicegate.policy_status(p_queue_id bigint) returns jsonb
language sql stable
set search_path = sluicegate, pg_temp
as $$
select d.document || jsonb_build_object(
    'queue', (select q.name from sluicegate.queue q where q.id = p_queue_id),
    'status', case v.verdict ->> 'state' when 'admitted' then 'admitted' else v.verdict ->> 'reason' end,
    'verdict', v.verdict - 'gates', 'gates', v.verdict -> 'gates')
from (select sluicegate.policy_document(p_queue_id) as document) d, (select sluicegate.verdict(p_queue_id) as verdict) v
where d.document is not null
$$;

-- A verdict in the four fields that every waiting job shows.
-- grants: none
create or replace function sluicegate.admission_status_of(p_verdict jsonb) returns jsonb
language sql immutable
set search_path = sluicegate, pg_temp
as $$
select jsonb_build_object('state', p_verdict -> 'state', 'reason', p_verdict -> 'reason',
    'next_eligible_at', p_verdict -> 'next_eligible_at', 'exact', p_verdict -> 'exact')
$$;

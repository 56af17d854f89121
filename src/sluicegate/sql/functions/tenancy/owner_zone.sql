-- The zone in which windows of a scope are counted unless they name one: its owner's, else UTC.
-- grants: none
create or replace function sluicegate.owner_zone(p_scope_id bigint) returns text
language sql stable
set search_path = sluicegate, pg_temp
as $$
select coalesce((
    select o.tz from sluicegate.owner o
    where o.id = coalesce((select e.owner_id from sluicegate.endpoint e where e.id = p_scope_id), p_scope_id)
), 'UTC')
$$;

-- A scope in text form, as scope_id reads it: 'endpoint:SLUG' for those of owner local, 'endpoint:SLUG@OWNER', 'team:SLUG'.
-- grants: none
create or replace function sluicegate.scope_text(p_scope_id bigint) returns text
language sql stable
set search_path = sluicegate, pg_temp
as $$
select coalesce(
    (select 'endpoint:' || e.slug || case when o.slug = 'local' then '' else '@' || o.slug end
    from sluicegate.endpoint e join sluicegate.owner o on o.id = e.owner_id where e.id = p_scope_id),
    (select 'team:' || o.slug from sluicegate.owner o where o.id = p_scope_id))
$$;

-- The options of a command about a queue that name its scope: none for the default one.
-- grants: none
create or replace function sluicegate.scope_options(p_scope text) returns text
language sql immutable
set search_path = sluicegate, pg_temp
as $$
select case when p_scope <> 'endpoint:default' and p_scope <> 'endpoint:default@local'
    then '--' || split_part(p_scope, ':', 1) || ' ' || substr(p_scope, strpos(p_scope, ':') + 1) end
$$;

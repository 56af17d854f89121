-- A text as the last argument of a shell command: as it is if it is plain, else quoted, and after -- if it looks like an option. Names come
-- from anybody, and a command that is shown is copied.
-- grants: none
create or replace function sluicegate.shell_word(p_text text) returns text
language sql immutable
set search_path = sluicegate, pg_temp
as $$
select case when p_text like '-%' then '-- ' else '' end
    || case when p_text ~ '^[A-Za-z0-9_.:@%+=,-]+$' then p_text else '''' || replace(p_text, '''', '''\''''') || '''' end
$$;

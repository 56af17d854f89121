-- The number of a scope: 'endpoint:SLUG' (owner local), 'endpoint:SLUG@OWNER' or 'team:SLUG'. Takes no lock.
-- Raises SG001 for a malformed scope and SG002 for an unknown one.
-- grants: none
create or replace function sluicegate.scope_id(p_scope text) returns bigint
language plpgsql stable
set search_path = sluicegate, pg_temp
as $$
declare
    v_scope text := coalesce(p_scope, 'endpoint:default');
    v_slug text := substr(v_scope, strpos(v_scope, ':') + 1);
    v_at integer := strpos(v_slug, '@');
    v_id bigint;
begin
    if v_scope like 'endpoint:%' then
        select e.id into v_id
        from sluicegate.endpoint e join sluicegate.owner o on o.id = e.owner_id
        where e.slug = case when v_at = 0 then v_slug else left(v_slug, v_at - 1) end
            and o.slug = case when v_at = 0 then 'local' else substr(v_slug, v_at + 1) end
            and e.revoked_at is null;
    elsif v_scope like 'team:%' then
        select o.id into v_id from sluicegate.owner o where o.slug = v_slug and o.kind = 'team';
    end if;
    if v_id is not null then
        return v_id;
    end if;
    if v_scope !~ '^(endpoint:[a-z0-9][a-z0-9._-]{0,62}(@[a-z0-9][a-z0-9._-]{0,62})?|team:[a-z0-9][a-z0-9._-]{0,62})$' then
        perform sluicegate.refuse('SG001', 'scope',
            format('The scope %L is malformed.', left(v_scope, 80)),
            'Write endpoint:SLUG, endpoint:SLUG@OWNER or team:SLUG, slugs in lower case.');
    end if;
    perform sluicegate.refuse('SG002', 'scope', format('There is no scope %L.', v_scope),
        'Check its spelling; a fresh installation has endpoint:default.');
    return null;
end
$$;

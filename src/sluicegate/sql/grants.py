"""Who may do what in the schema: the group roles, and the statements that bring its grants to what is declared.

Functions declare their grants in their files. Nobody but the owner writes a table. ``reader`` and ``admin`` read
every table, without the columns that hold a hash of a secret; all roles read which version is installed. Grants to
roles that are not ours are left alone, except that PUBLIC gets nothing; so are relations that are not ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate.sql.source import GRANTEES, Source

__all__ = ["ROLES", "create_role_statements", "grants_block", "grants_query", "roles_block"]

ROLES = tuple(f"sluicegate_{grantee}" for grantee in GRANTEES)

# A column is secret by its name, so that one added later is closed without anybody having to remember.
SECRET_COLUMN = "(token|secret|password)"

_ROLE_LIST = ", ".join(f"'{role}'" for role in ROLES)


def create_role_statements(missing: Sequence[str]) -> list[str]:
    """What a DBA runs when the owner of the schema may not create roles."""
    return [f"create role {role} nologin;" for role in missing]


def roles_block() -> str:
    """Create the roles that are missing, where that is permitted; elsewhere do nothing.

    Roles belong to the whole cluster, so migrators of other databases may create them at the same moment.
    """
    return f"""\
do $roles$
declare
    v_role text;
begin
    if not (select r.rolsuper or r.rolcreaterole from pg_roles r where r.rolname = current_user) then
        return;
    end if;
    foreach v_role in array array[{_ROLE_LIST}] loop
        continue when exists (select from pg_roles r where r.rolname = v_role);
        begin
            execute format('create role %I nologin', v_role);
        exception when duplicate_object or unique_violation then
            null;
        end;
    end loop;
end
$roles$;
"""


def grants_query(source: Source, *, only_own: bool = True, keep: bool = False) -> str:
    """A query for the statements that are missing: none when every grant is as declared. Revokes come first.

    Of tables, views and sequences only those that our migrations make are looked at: others belong to somebody else.
    ``only_own`` leaves out what the current role does not own and could not grant; ``keep`` takes from our roles no
    function that they may call, since an older library may be calling it.
    """
    owned = "pg_has_role(t.owner, 'USAGE')" if only_own else "true"
    wanted_now = "c.verb = 'grant' or c.kind <> 'function' or c.role = 'public'" if keep else "true"
    declared = ", ".join(
        f"('{file.name}', 'sluicegate_{grantee}')" for file in source.functions for grantee in file.grants
    )
    made = ", ".join(f"'{name}'" for name in source.relations)
    wanted = f"values {declared}" if declared else "select null::text, null::text where false"
    return f"""\
with declared (name, role) as ({wanted}),
ours as (select r.oid, r.rolname from pg_roles r where r.rolname in ({_ROLE_LIST})),
managed as (select o.oid, o.rolname::text as role, quote_ident(o.rolname) as written from ours o
    union all select 0::oid, 'public', 'public'),
space as (select n.oid, n.nspacl, n.nspowner from pg_namespace n where n.nspname = 'sluicegate'),
things as (
    select 'function' as kind, p.oid, 0::smallint as attnum, p.proname::text as name, p.proowner as owner,
        coalesce(p.proacl, acldefault('f', p.proowner)) as acl,
        format('function sluicegate.%I(%s)', p.proname, pg_get_function_identity_arguments(p.oid)) as written,
        '' as col, false as secret
    from pg_proc p join space s on s.oid = p.pronamespace
    union all
    select case when c.relkind = 'S' then 'sequence' else 'table' end, c.oid, 0::smallint, c.relname::text, c.relowner,
        coalesce(c.relacl, acldefault(case when c.relkind = 'S' then 's' else 'r' end::"char", c.relowner)),
        format('%s sluicegate.%I', case when c.relkind = 'S' then 'sequence' else 'table' end, c.relname), '',
        exists (select from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            and a.attname ~ '{SECRET_COLUMN}')
    from pg_class c join space s on s.oid = c.relnamespace where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
        and (c.relname in ({made}) or c.oid in (select d.objid from pg_depend d join pg_class t on t.oid = d.refobjid
            where d.deptype = 'i' and t.relnamespace = s.oid and t.relname in ({made})))
    union all
    select 'column', c.oid, a.attnum, c.relname::text, c.relowner, coalesce(a.attacl, acldefault('c', c.relowner)),
        format('table sluicegate.%I', c.relname), format(' (%I)', a.attname), a.attname ~ '{SECRET_COLUMN}'
    from pg_class c join space s on s.oid = c.relnamespace
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relname in ({made})
    union all
    select 'schema', s.oid, 0::smallint, 'sluicegate', s.nspowner, coalesce(s.nspacl, acldefault('n', s.nspowner)),
        'schema sluicegate', '', false
    from space s
),
have as (
    select t.kind, t.oid, t.attnum, m.role, g.privilege_type as privilege
    from things t cross join lateral aclexplode(t.acl) g join managed m on m.oid = g.grantee
    where g.grantee <> t.owner
),
want as (
    select t.kind, t.oid, t.attnum, m.role,
        case t.kind when 'function' then 'EXECUTE' when 'schema' then 'USAGE' else 'SELECT' end as privilege
    from things t cross join managed m
    where m.oid <> 0 and m.oid <> t.owner and case t.kind
        when 'function' then exists (select from declared d where d.name = t.name and d.role = m.role)
        when 'schema' then true
        when 'table' then t.name in ('migration', 'function_version')
            or (m.role in ('sluicegate_reader', 'sluicegate_admin') and not t.secret)
        when 'column' then m.role in ('sluicegate_reader', 'sluicegate_admin') and not t.secret
            and exists (select from things p where p.kind = 'table' and p.oid = t.oid and p.secret)
        else false end
),
changes as (
    select 0 as turn, 'revoke' as verb, h.* from (select * from have except select * from want) h
    union all
    select 1, 'grant', w.* from (select * from want except select * from have) w
)
select format('%s %s%s on %s %s %s', c.verb, lower(c.privilege), t.col, t.written,
    case c.verb when 'grant' then 'to' else 'from' end, m.written)
from changes c
join things t on t.kind = c.kind and t.oid = c.oid and t.attnum = c.attnum
join managed m on m.role = c.role
where {owned} and ({wanted_now})
order by c.turn, t.kind, t.written, t.col, c.role, c.privilege"""


def grants_block(source: Source) -> str:
    """The same as a block. Twice, because a revoke on a table takes the grants on its columns with it."""
    return f"""\
do $grants$
declare
    v_statement text;
begin
    for v_turn in 1..2 loop
        for v_statement in
{grants_query(source)}
        loop
            execute v_statement;
        end loop;
    end loop;
end
$grants$;
"""

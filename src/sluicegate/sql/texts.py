"""The SQL text that migrating consists of.

``migrate`` runs these texts, and ``migrate --sql`` prints them for a DBA: one source, so that both do the same.
Everything here is text in, text out; nothing talks to a database.
"""

from __future__ import annotations

from sluicegate.sql.source import FunctionFile, MigrationFile

__all__ = [
    "AS_OWNER",
    "BOOTSTRAP",
    "INSTALLED_SHA256",
    "INSTALLED_SIGNATURE",
    "LOCK_KEY",
    "SETTINGS",
    "function_text",
    "literal",
    "migration_row",
    "record_function",
    "record_migration",
    "vanished_text",
]

# One advisory lock per database for all migrators, always taken for one transaction: poolers in transaction mode
# would let two clients hold a session lock.
LOCK_KEY = 7_310_018_466_203_391

# A migration must not inherit what the session was set to; 2 s is the longest it may hold up others.
SETTINGS = """\
set local lock_timeout = '2s';
set local statement_timeout = 0;
set local search_path = pg_catalog, pg_temp;
set local check_function_bodies = off;
set local client_min_messages = warning;
set local standard_conforming_strings = on;
set local synchronous_commit = on;
set local jit = off;
do $timeouts$
begin
    -- Not every server knows both.
    perform set_config(s.name, '0', true) from pg_settings s
    where s.name in ('transaction_timeout', 'idle_in_transaction_session_timeout');
end
$timeouts$;
"""

# Whoever migrates for the owner of the schema, a DBA for instance, acts as the owner: what he makes belongs to it.
AS_OWNER = """\
do $owner$
begin
    perform set_config('role', pg_get_userbyid(n.nspowner), true)
    from pg_namespace n
    where n.nspname = 'sluicegate' and n.nspowner <> (select r.oid from pg_roles r where r.rolname = current_user)
        and pg_has_role(n.nspowner, 'MEMBER');
exception when insufficient_privilege then
    null;
end
$owner$;
"""

BOOTSTRAP = """\
do $bootstrap$
begin
    if not exists (select from pg_namespace where nspname = 'sluicegate') then
        create schema sluicegate;
    end if;
    if not exists (select from pg_tables where schemaname = 'sluicegate' and tablename = 'migration') then
        create table sluicegate.migration (
            version integer primary key,
            name text not null,
            sha256 text not null,
            phase text not null,
            minimum integer not null,
            library text not null,
            started_at timestamptz not null default clock_timestamp(),
            applied_at timestamptz,
            backend_pid integer,
            backend_start timestamptz
        );
        comment on column sluicegate.migration.applied_at is
            'null: a non-transactional file was begun and not finished; migrate goes on with it';
    end if;
    if not exists (select from pg_tables where schemaname = 'sluicegate' and tablename = 'function_version') then
        create table sluicegate.function_version (
            name text primary key,
            sha256 text not null,
            signature text not null,
            identity_arguments text not null,
            installed_signature text not null,
            installed_sha256 text not null,
            library text not null,
            applied_at timestamptz not null default clock_timestamp()
        );
    end if;
end
$bootstrap$;
"""

# What a function is, whoever wrote it: compared to see that it was replaced by hand. "p" is its pg_proc row.
INSTALLED_SIGNATURE = "pg_get_function_arguments(p.oid) || ' returns ' || pg_get_function_result(p.oid)"
INSTALLED_SHA256 = f"""\
encode(sha256(convert_to(concat_ws(' | ', p.prosrc, pg_get_function_sqlbody(p.oid), {INSTALLED_SIGNATURE},
    (select l.lanname from pg_language l where l.oid = p.prolang), p.prosecdef, p.provolatile, p.proisstrict,
    p.proparallel, p.proconfig), getdatabaseencoding())), 'hex')"""


def literal(value: str) -> str:
    """``value`` as an SQL string."""
    return "'" + value.replace("'", "''") + "'"


def record_migration(file: MigrationFile, library: str) -> str:
    """The row that says ``file`` is applied; it commits with the file, or not at all."""
    return f"{migration_row(file, library, 'clock_timestamp()')};\n"


def migration_row(file: MigrationFile, library: str, applied_at: str) -> str:
    values = ", ".join(literal(value) for value in (file.name, file.sha256, file.phase))
    return (
        "insert into sluicegate.migration (version, name, sha256, phase, minimum, library, applied_at)\n"
        f"values ({file.version}, {values}, {file.minimum}, {literal(library)}, {applied_at})"
    )


def function_text(file: FunctionFile, library: str) -> str:
    """Create or replace one function and record it. Other forms that it had before are dropped first."""
    name = literal(file.name)
    return f"""\
do $replace$
declare
    v_drop text;
begin
    for v_drop in
        select format('drop function sluicegate.%I(%s)', p.proname, v.identity_arguments)
        from sluicegate.function_version v
        join pg_proc p on p.proname = split_part(v.name, '(', 1)
            and pg_get_function_identity_arguments(p.oid) = v.identity_arguments
        where p.pronamespace = 'sluicegate'::regnamespace and p.proname = {name} and (v.name <> p.proname
            or v.signature <> {literal(file.signature)} or v.installed_signature <> {INSTALLED_SIGNATURE})
    loop
        execute v_drop;
    end loop;
end
$replace$;
{file.text.strip()}
{record_function(file, library)}"""


def record_function(file: FunctionFile, library: str) -> str:
    """Record the function that was created last under this name. What was kept for older libraries is so no longer if it is this one."""
    name = literal(file.name)
    return f"""\
insert into sluicegate.function_version as v
    (name, sha256, signature, identity_arguments, installed_signature, installed_sha256, library)
select {name}, {literal(file.sha256)}, {literal(file.signature)}, pg_get_function_identity_arguments(p.oid),
    {INSTALLED_SIGNATURE},
    {INSTALLED_SHA256},
    {literal(library)}
from pg_proc p
where p.pronamespace = 'sluicegate'::regnamespace and p.proname = {name}
order by age(p.xmin) limit 1
on conflict (name) do update set sha256 = excluded.sha256, signature = excluded.signature,
    identity_arguments = excluded.identity_arguments, installed_signature = excluded.installed_signature,
    installed_sha256 = excluded.installed_sha256, library = excluded.library, applied_at = excluded.applied_at;
delete from sluicegate.function_version k using sluicegate.function_version v
where v.name = {name} and k.name = v.name || '(' || v.identity_arguments || ')';
"""


def vanished_text(names: list[str]) -> str:
    """Drop the functions that an earlier library installed and this one, which ships ``names``, does not have.

    Among them are older forms of its own, which a run of the pre phase kept under the name ``NAME(ARGUMENTS)``.
    """
    shipped = ", ".join(literal(name) for name in names)
    return f"""\
do $vanished$
declare
    v_gone record;
begin
    for v_gone in
        select v.name, p.proname, v.identity_arguments, p.oid is not null as installed
        from sluicegate.function_version v
        left join pg_proc p on p.pronamespace = 'sluicegate'::regnamespace and p.proname = split_part(v.name, '(', 1)
            and pg_get_function_identity_arguments(p.oid) = v.identity_arguments
        where v.name <> all (array[{shipped}]::text[])
    loop
        if v_gone.installed then
            execute format('drop function sluicegate.%I(%s)', v_gone.proname, v_gone.identity_arguments);
        end if;
        delete from sluicegate.function_version where name = v_gone.name;
    end loop;
end
$vanished$;
"""

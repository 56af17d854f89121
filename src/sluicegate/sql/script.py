"""The SQL text that migrating consists of.

``migrate`` runs these texts, and ``migrate --sql`` prints them for a DBA: one source, so that both do the same.
Everything here is text in, text out; nothing talks to a database.
"""

from __future__ import annotations

from sluicegate.errors import InvalidArgument
from sluicegate.sql.grants import grants_block, roles_block
from sluicegate.sql.source import FunctionFile, MigrationFile, Source

__all__ = [
    "BOOTSTRAP",
    "LOCK_KEY",
    "SETTINGS",
    "function_text",
    "literal",
    "migration_script",
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
    return f"{_migration_row(file, library, 'clock_timestamp()')};\n"


def _migration_row(file: MigrationFile, library: str, applied_at: str) -> str:
    values = ", ".join(literal(value) for value in (file.name, file.sha256, file.phase))
    return (
        "insert into sluicegate.migration (version, name, sha256, phase, minimum, library, applied_at)\n"
        f"values ({file.version}, {values}, {file.minimum}, {literal(library)}, {applied_at})"
    )


def function_text(file: FunctionFile, library: str) -> str:
    """Create or replace one function and record it. An overload with another signature is dropped first."""
    name = literal(file.name)
    return f"""\
do $replace$
declare
    v_drop text;
begin
    select format('drop function sluicegate.%I(%s)', v.name, v.identity_arguments) into v_drop
    from sluicegate.function_version v
    join pg_proc p on p.proname = v.name and pg_get_function_identity_arguments(p.oid) = v.identity_arguments
    where v.name = {name} and p.pronamespace = 'sluicegate'::regnamespace
        and (v.signature <> {literal(file.signature)} or v.installed_signature <> {INSTALLED_SIGNATURE});
    if v_drop is not null then
        execute v_drop;
    end if;
end
$replace$;
{file.text.strip()}
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
"""


def vanished_text(names: list[str]) -> str:
    """Drop the functions that an earlier library installed and this one, which ships ``names``, does not have."""
    shipped = ", ".join(literal(name) for name in names)
    return f"""\
do $vanished$
declare
    v_gone record;
begin
    for v_gone in
        select v.name, v.identity_arguments, p.oid is not null as installed
        from sluicegate.function_version v
        left join pg_proc p on p.pronamespace = 'sluicegate'::regnamespace and p.proname = v.name
            and pg_get_function_identity_arguments(p.oid) = v.identity_arguments
        where v.name <> all (array[{shipped}]::text[])
    loop
        if v_gone.installed then
            execute format('drop function sluicegate.%I(%s)', v_gone.name, v_gone.identity_arguments);
        end if;
        delete from sluicegate.function_version where name = v_gone.name;
    end loop;
end
$vanished$;
"""


def migration_script(source: Source, start: int = 0, to: int | None = None) -> str:
    """The whole migration from version ``start`` to ``to`` (default: the latest) as a script for psql.

    Functions, roles and grants belong to the latest version, so a script that ends earlier leaves them out. Raises
    InvalidArgument when the range is not within what ships.
    """
    end = source.latest if to is None else to
    if not 0 <= start <= end <= source.latest:
        raise InvalidArgument(
            f"There is no migration from version {start} to {end}: this library ships 1 to {source.latest}.",
            field="range",
            next_step="Give FROM..TO with 0 <= FROM <= TO; FROM is the version that the database has now, 0 if none.",
        )
    header = f"""\
-- Sluicegate {source.library}: the schema from version {start} to {end}, for PostgreSQL 15 or newer.
-- Run it as the owner of the schema (for a first run: a role with CREATE on the database):
--     psql -X -v ON_ERROR_STOP=1 -f THIS_FILE
-- Each part is a transaction, and refuses to run on any other version than the one it starts from.
-- After an error go on with: sluicegate migrate --sql VERSION..TO, where VERSION is the result of
--     select max(version) from sluicegate.migration where applied_at is not null
"""
    wanted = source.migrations[start:end]
    parts = [header, *((_transactional if file.transactional else _online)(file, source.library) for file in wanted)]
    if end == source.latest:
        parts.append(_part("Roles, where they are missing and may be created", roles_block()))
        functions = [
            AS_OWNER,
            _turn(end),
            *(function_text(file, source.library) for file in source.functions),
            vanished_text([file.name for file in source.functions]),
            grants_block(source.functions),
            "notify sluicegate_clock;\n",
        ]
        parts.append(_part("Functions and grants", *functions))
    return "\n".join(parts)


def _part(title: str, *texts: str) -> str:
    return f"-- {title}\nbegin isolation level read committed;\n{SETTINGS}{''.join(texts)}commit;\n"


def _turn(version: int) -> str:
    return f"""\
do $turn$
declare
    v_version integer := 0;
begin
    if not pg_try_advisory_xact_lock({LOCK_KEY}) then
        raise exception 'Another migrator is at work in this database.' using hint = 'Run this part again when it has ended.';
    end if;
    if exists (select from pg_tables where schemaname = 'sluicegate' and tablename = 'migration') then
        select coalesce(max(m.version), 0) into v_version from sluicegate.migration m where m.applied_at is not null;
    end if;
    if v_version <> {version} then
        raise exception 'The schema is at version %, and this part of the script starts from version {version}.', v_version
            using hint = format('Print what is missing with: sluicegate migrate --sql %s..', v_version);
    end if;
end
$turn$;
"""


def _transactional(file: MigrationFile, library: str) -> str:
    text = file.text.strip() + "\n"
    return _part(file.label, AS_OWNER, _turn(file.version - 1), BOOTSTRAP, text, record_migration(file, library))


def _online(file: MigrationFile, library: str) -> str:
    begun = f"{_migration_row(file, library, 'null')}\non conflict (version) do nothing;\n"
    indexes = [name for name in map(file.index_of, file.statements) if name is not None]
    checks = "".join(
        f"""\
do $valid$
begin
    if not (select i.indisvalid from pg_index i where i.indexrelid = 'sluicegate.{name}'::regclass) then
        raise exception 'The index sluicegate.{name} was left invalid by a build that did not end.'
            using hint = 'Run: drop index concurrently sluicegate.{name}; then repeat this script from {file.label}.';
    end if;
end
$valid$;
"""
        for name in indexes
    )
    return "\n".join(
        [
            _part(f"{file.label}: begun", AS_OWNER, _turn(file.version - 1), begun),
            f"-- {file.label}: outside a transaction; every statement may be repeated",
            *(f"{statement};" for statement in file.statements),
            "",
            _part(
                f"{file.label}: finished",
                AS_OWNER,
                checks,
                "update sluicegate.migration set applied_at = clock_timestamp(), backend_pid = null, backend_start = null\n"
                f"where version = {file.version};\n",
            ),
        ]
    )

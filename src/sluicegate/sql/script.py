"""The whole migration as a script for psql, which ``migrate --sql`` prints for a DBA."""

from __future__ import annotations

from sluicegate.errors import InvalidArgument
from sluicegate.sql.grants import grants_block, roles_block
from sluicegate.sql.source import MigrationFile, Source
from sluicegate.sql.texts import (
    AS_OWNER,
    BOOTSTRAP,
    LOCK_KEY,
    SETTINGS,
    function_text,
    migration_row,
    record_migration,
    vanished_text,
)

__all__ = ["migration_script"]


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
            grants_block(source),
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
    begun = f"{migration_row(file, library, 'null')}\non conflict (version) do nothing;\n"
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

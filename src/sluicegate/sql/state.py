"""What is installed in a database, and whether this library may use it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import psycopg
from psycopg.rows import tuple_row

from sluicegate.errors import Forbidden, SchemaMismatch
from sluicegate.sql.manifest import UNKNOWN, Manifest, load_manifest
from sluicegate.sql.texts import INSTALLED_SHA256

__all__ = ["MINIMUM_SCHEMA", "Installed", "InstalledFunction", "SchemaState", "judge", "read_installed", "schema_state"]

# The oldest schema this library works with: the highest migration that its code cannot do without.
MINIMUM_SCHEMA = 1

Name = Literal["ok", "behind", "ahead", "missing", "tampered"]


@dataclass(frozen=True, slots=True)
class InstalledMigration:
    """A row of ``sluicegate.migration``. ``finished`` is false for a non-transactional file that was cut short."""

    version: int
    name: str
    sha256: str
    minimum: int
    library: str
    finished: bool


@dataclass(frozen=True, slots=True)
class InstalledFunction:
    """A row of ``sluicegate.function_version``; ``intact`` says whether the function is still the one we installed."""

    name: str
    sha256: str
    library: str
    exists: bool
    intact: bool


@dataclass(frozen=True, slots=True)
class Installed:
    """Everything that the database knows about its own version; ``foreign`` is a schema of somebody else's making."""

    migrations: tuple[InstalledMigration, ...] = ()
    functions: tuple[InstalledFunction, ...] = ()
    present: bool = False
    foreign: str | None = None

    @property
    def version(self) -> int:
        return max((row.version for row in self.migrations if row.finished), default=0)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """How the schema and this library stand to each other.

    ``state``: ``ok``; ``behind``: ``migrate`` has something to do; ``ahead``: a newer library has migrated it;
    ``missing``: nothing is installed; ``tampered``: an applied migration is not the one that this library ships.
    ``usable`` says whether the library may work with it; ``message`` and ``next_step`` say it to people.
    ``pending`` and ``stale_functions`` are what ``migrate`` would apply, ``replaced_functions`` those that were changed
    behind its back, and ``clock_replaced`` whether ``sluicegate.clock()`` is among them. ``vanished_functions`` no longer
    ship: an older library left them, or a run of the pre phase kept them for one.
    """

    state: Name
    usable: bool
    version: int
    latest: int
    message: str
    next_step: str | None = None
    pending: tuple[str, ...] = ()
    stale_functions: tuple[str, ...] = ()
    replaced_functions: tuple[str, ...] = ()
    vanished_functions: tuple[str, ...] = ()
    clock_replaced: bool = False

    def require(self) -> None:
        """Raise SchemaMismatch unless the library may use the schema."""
        if not self.usable:
            raise SchemaMismatch(self.message, next_step=self.next_step)


_PRESENT = """\
select exists (select from pg_tables where schemaname = 'sluicegate' and tablename = 'migration'),
    exists (select from pg_tables where schemaname = 'sluicegate' and tablename = 'function_version'),
    (select quote_ident(pg_get_userbyid(n.nspowner)) from pg_namespace n where n.nspname = 'sluicegate'), quote_ident(current_user),
    (select string_agg(c.relname::text, ', ' order by c.relname) from pg_class c
        where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = 'sluicegate') and c.relkind in ('r', 'v'))
"""
_MIGRATIONS = """\
select version, name, sha256, minimum, library, applied_at is not null from sluicegate.migration order by version
"""
_FUNCTIONS = f"""\
select v.name, v.sha256, v.library, p.oid is not null, coalesce({INSTALLED_SHA256} = v.installed_sha256, false)
from sluicegate.function_version v
left join pg_proc p on p.proname = split_part(v.name, '(', 1) and pg_get_function_identity_arguments(p.oid) = v.identity_arguments
    and p.pronamespace = (select n.oid from pg_namespace n where n.nspname = 'sluicegate')
order by v.name
"""


def read_installed(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Installed:
    """Read the two version tables. Raises Forbidden when the role may not look at them."""
    found = cursor.execute(_PRESENT, prepare=False).fetchone()
    assert found is not None
    migration, function_version, owner, role, relations = found
    if not migration:
        return Installed(foreign=relations)
    try:
        # INSTALLED_SHA256 shows types and defaults as text, which depends on what needs no qualification.
        cursor.execute("set local search_path = pg_catalog, pg_temp; set local jit = off", prepare=False)
        migrations = cursor.execute(_MIGRATIONS, prepare=False).fetchall()
        functions = cursor.execute(_FUNCTIONS, prepare=False).fetchall() if function_version else []
    except psycopg.errors.InsufficientPrivilege as error:
        raise Forbidden(
            f"The role {role} may not use the schema sluicegate: {error.diag.message_primary}.",
            next_step=f"To use it, have its owner or a DBA run: grant sluicegate_worker to {role} (or _producer, _reader, _admin)."
            f" To migrate it, connect as {owner}.",
        ) from error
    return Installed(
        tuple(InstalledMigration(*row) for row in migrations), tuple(InstalledFunction(*row) for row in functions), True
    )


def _numbers(version: str) -> list[int]:
    found = re.match(r"\d+(\.\d+)*", version)
    return [int(part) for part in found.group().split(".")] if found else [0]


def _tampered(source: Manifest, installed: Installed) -> str | None:
    shipped = {file.version: file for file in source.migrations}
    for row in installed.migrations:
        file = shipped.get(row.version)
        label = f"{row.version:04d}_{row.name}"
        if file is None:
            if row.version <= source.latest:
                return f"Migration {label} was applied to this database, but this library does not ship it."
        elif file.name != row.name:
            return (
                f"Migration {row.version:04d} was applied as {label}, but this library ships {file.label} in its place."
            )
        elif file.sha256 != row.sha256:
            return f"Migration {label} was applied to this database with another text than this library ships."
    return None


def judge(source: Manifest, installed: Installed) -> SchemaState:
    """Compare what ships with what is installed."""
    version, latest = installed.version, source.latest
    if not installed.present:
        return SchemaState(
            "missing", False, 0, latest, "The database has no Sluicegate schema.", "Run: sluicegate migrate",
            pending=tuple(file.label for file in source.migrations), stale_functions=tuple(file.name for file in source.functions),
        )  # fmt: skip
    fault = _tampered(source, installed)
    if fault is not None:
        return SchemaState(
            "tampered", False, version, latest, fault,
            "Put the original file back (reinstall the sluicegate version that applied it), and make changes in a new migration.",
        )  # fmt: skip

    finished = {row.version for row in installed.migrations if row.finished}
    recorded = {row.name: row for row in installed.functions}
    shipped = {file.name: file for file in source.functions}
    replaced = tuple(row.name for row in installed.functions if row.exists and not row.intact)
    stale = tuple(
        name
        for name, file in shipped.items()
        if name not in recorded or recorded[name].sha256 != file.sha256 or not recorded[name].intact
    )
    details = _Details(
        pending=tuple(file.label for file in source.migrations if file.version not in finished),
        stale_functions=stale,
        replaced_functions=replaced,
        vanished_functions=tuple(name for name in recorded if name not in shipped),
        clock_replaced="clock" in replaced,
    )
    libraries = [*(row.library for row in installed.migrations), *(row.library for row in installed.functions)]
    newest = max(libraries, key=_numbers, default="0")
    if version > latest or (source.library != UNKNOWN and _numbers(newest) > _numbers(source.library)):
        return _ahead(source, installed, newest, details)
    # A moved clock alone is a test in progress: migrate puts it back, but nobody is refused for it.
    moved = {"clock"} if details["clock_replaced"] and recorded["clock"].sha256 == shipped["clock"].sha256 else set()
    if details["pending"] or details["vanished_functions"] or set(stale) - moved:
        return _behind(source, installed, details)
    message = f"The schema is at version {version}, as this library wants it."
    return SchemaState("ok", True, version, latest, message, **details)


class _Details(TypedDict):
    pending: tuple[str, ...]
    stale_functions: tuple[str, ...]
    replaced_functions: tuple[str, ...]
    vanished_functions: tuple[str, ...]
    clock_replaced: bool


def _ahead(source: Manifest, installed: Installed, newest: str, details: _Details) -> SchemaState:
    minimum = max(row.minimum for row in installed.migrations)
    usable = source.latest >= minimum
    message = (
        f"The schema is at version {installed.version}, migrated by sluicegate {newest}; "
        f"this is sluicegate {source.library}, which knows versions up to {source.latest}"
    )
    message += "." if usable else f", and the schema needs a library that knows version {minimum}."
    details["pending"] = details["stale_functions"] = details["vanished_functions"] = ()
    return SchemaState(
        "ahead", usable, installed.version, source.latest, message, f"Upgrade this library to sluicegate {newest}.", **details
    )  # fmt: skip


def _behind(source: Manifest, installed: Installed, details: _Details) -> SchemaState:
    absent = {file.name for file in source.functions} - {row.name for row in installed.functions if row.exists}
    usable = installed.version >= MINIMUM_SCHEMA and not absent
    if details["pending"]:
        message = (
            f"The schema is at version {installed.version} and this library brings {', '.join(details['pending'])}."
        )
    elif absent:
        message = f"The schema lacks these functions: {', '.join(sorted(absent))}."
    elif details["stale_functions"]:
        changed = sorted({*details["stale_functions"], *details["vanished_functions"]})
        message = f"These functions are not the ones this library ships: {', '.join(changed)}."
    else:
        message = f"These functions are there for older libraries only: {', '.join(details['vanished_functions'])}."
        return SchemaState(
            "behind", usable, installed.version, source.latest, message, "When none of those runs any more: sluicegate migrate",
            **details,
        )  # fmt: skip
    return SchemaState(
        "behind", usable, installed.version, source.latest, message, "Run: sluicegate migrate", **details
    )


def schema_state(conn: psycopg.Connection[Any], *, directory: Path | None = None) -> SchemaState:
    """Say how the schema behind ``conn`` and this library stand to each other; ``SchemaState.require`` refuses.

    Reads only, in a transaction of its own unless ``conn`` is in one. Raises Forbidden when the role of ``conn`` may not
    look at the schema.
    """
    source = load_manifest(directory)
    with conn.transaction(force_rollback=True), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        return judge(source, read_installed(cursor))

"""Bring the schema of a database to what this library ships.

Numbered files are applied once, each in one transaction with the row that records it; functions are replaced when
their text, or the function itself, has changed; grants are then brought to what the files declare. All of it under one
advisory lock that is taken for a transaction and never waited for: a waiting transaction would hold the very snapshot
that another migrator's concurrent index build waits for. So any number of migrators may run, and be killed, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from sluicegate.errors import Forbidden, InvalidArgument, SchemaMismatch, SluicegateError, Unavailable
from sluicegate.sql import texts
from sluicegate.sql.grants import ROLES, grants_query, roles_block
from sluicegate.sql.online import apply_online
from sluicegate.sql.rolling import replace_beside
from sluicegate.sql.source import MigrationFile, Phase, Source, load_source
from sluicegate.sql.state import SchemaState, judge, read_installed, schema_state
from sluicegate.sql.turn import Cursor, Turns

__all__ = ["MigrationReport", "SchemaState", "migrate", "schema_state"]

OLDEST_SERVER = 150000


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What one run of ``migrate`` did. ``version`` is the schema's afterwards.

    ``applied`` are the migrations of this run, ``functions`` the functions it created or replaced, ``dropped`` those
    that no longer ship. ``clock_restored`` says that a replaced ``sluicegate.clock()`` was put back, ``missing_roles``
    which group roles do not exist because this role may not create them, ``grants`` how many grants were changed.
    ``left`` are the migrations that wait for a run without a phase, ``kept`` the functions that older libraries call and
    that such a run drops; of a function that has another form now, the old one is written ``NAME(ARGUMENTS)``.
    """

    version: int
    applied: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    clock_restored: bool = False
    grants: int = 0
    missing_roles: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    note: str | None = None

    @property
    def changed(self) -> bool:
        return bool(self.applied or self.functions or self.dropped or self.grants)

    def to_dict(self) -> dict[str, object]:
        return {
            "version": self.version,
            "changed": self.changed,
            "applied": list(self.applied),
            "functions": list(self.functions),
            "dropped": list(self.dropped),
            "clock_restored": self.clock_restored,
            "grants": self.grants,
            "missing_roles": list(self.missing_roles),
            "left": list(self.left),
            "kept": list(self.kept),
            "note": self.note,
        }


def migrate(
    conn: psycopg.Connection[Any],
    *,
    progress: Callable[[str], None] | None = None,
    phase: Phase | None = None,
    timeout: float = 60.0,
    directory: Path | None = None,
) -> MigrationReport:
    """Bring the schema ``sluicegate`` in the database behind ``conn`` to what this library ships.

    ``progress`` is called with a sentence for each step and each wait. ``phase="pre"`` stops before the first pending
    post migration, and keeps functions and grants that older libraries need; None applies all and keeps none. ``timeout`` is how many seconds one step may be kept waiting by other sessions.
    ``directory`` holds ``migrations/`` and ``functions/`` (default: the library's own).

    ``conn`` must not be in a transaction; its settings are restored. A schema that a newer library has migrated, and
    that tolerates this one, is left alone. Raises SchemaMismatch when an applied file was changed or the schema is too
    new, Forbidden when the role may not do a step, Unavailable when others held it up for ``timeout``.
    """
    if conn.info.transaction_status != TransactionStatus.IDLE:
        raise InvalidArgument(
            "migrate needs a connection that is not in a transaction.",
            field="conn",
            next_step="Commit or roll back first.",
        )
    if conn.info.server_version < OLDEST_SERVER:
        raise SchemaMismatch(
            f"Sluicegate needs PostgreSQL 15 or newer; this server is {conn.info.parameter_status('server_version')}.",
            next_step="Use a newer server, or none: without a DSN Sluicegate brings its own.",
        )
    run = _Run(Turns(conn, progress if progress is not None else _silent, timeout), load_source(directory))
    with _own_settings(conn):
        try:
            _require_primary(run.turns)
            return run.go(phase)
        except psycopg.Error as error:
            raise _explained(error, run.doing, conn) from error


def _require_primary(turns: Turns) -> None:
    with turns.cursor() as cursor:
        if cursor.execute("select pg_is_in_recovery()", prepare=False).fetchone() == (True,):
            raise Unavailable(
                "This server is a standby, which cannot be migrated.",
                retriable=False,
                next_step="Connect to the primary: name every host in the DSN and add target_session_attrs=read-write.",
            )


def _silent(_: str) -> None:
    return None


@contextmanager
def _own_settings(conn: psycopg.Connection[Any]) -> Iterator[None]:
    # READ COMMITTED, so that what is read after the lock was got is newer than the lock.
    before = (conn.autocommit, conn.isolation_level, conn.read_only, conn.deferrable)
    conn.autocommit, conn.isolation_level, conn.read_only = True, psycopg.IsolationLevel.READ_COMMITTED, False
    try:
        yield
    finally:
        if not conn.closed:
            conn.autocommit, conn.isolation_level, conn.read_only, conn.deferrable = before


class _Run:
    """One run. ``doing`` names the step at hand, for messages."""

    def __init__(self, turns: Turns, source: Source) -> None:
        self.turns = turns
        self.source = source
        self.doing = "Reading what is installed"

    def go(self, phase: Phase | None) -> MigrationReport:
        state = self._look()
        if state.state == "ahead":
            return MigrationReport(state.version, note=f"{state.message} It was left alone.")
        missing = self._roles()
        pending = [file for file in self.source.migrations if file.label in state.pending]
        stop = next((at for at, file in enumerate(pending) if phase == "pre" and file.phase == "post"), len(pending))
        applied = tuple(file.label for file in pending[:stop] if self._apply(file))
        report = self._functions(keep=phase == "pre")
        state = self._look()
        return MigrationReport(
            version=state.version,
            applied=applied,
            missing_roles=missing,
            left=tuple(file.label for file in pending[stop:]),
            kept=state.vanished_functions,
            **report,
        )

    def _look(self, cursor: Cursor | None = None) -> SchemaState:
        if cursor is None:
            with self.turns.conn.transaction(), self.turns.cursor() as own:
                return self._look(own)
        installed = read_installed(cursor)
        if installed.foreign is not None:
            raise SchemaMismatch(
                f"The schema sluicegate exists but was not made by Sluicegate: it holds {installed.foreign}.",
                next_step="Use another database, or move those tables away.",
            )
        state = judge(self.source.manifest, installed)
        if state.state in {"tampered", "ahead"}:
            state.require()
        return state

    def _roles(self) -> tuple[str, ...]:
        self.doing = "Creating the roles"

        def missing(cursor: Cursor) -> tuple[str, ...]:
            rows = cursor.execute("select rolname from pg_roles where rolname = any(%s)", ([*ROLES],), prepare=False)
            found = {row[0] for row in rows}
            return tuple(role for role in ROLES if role not in found)

        def create(cursor: Cursor) -> tuple[str, ...]:
            cursor.execute(roles_block(), prepare=False)
            return missing(cursor)

        with self.turns.cursor() as cursor:
            absent = missing(cursor)
        return self.turns.take(self.doing, create, as_owner=False) if absent else ()

    def _apply(self, file: MigrationFile) -> bool:
        self.doing = f"Migration {file.label}"
        if not file.transactional:
            return apply_online(self.turns, file, self.source.library)

        def apply(cursor: Cursor) -> bool:
            cursor.execute(texts.BOOTSTRAP, prepare=False)
            if file.label not in self._look(cursor).pending:
                return False
            self.turns.say(f"{self.doing}: applying.")
            cursor.execute(file.text, prepare=False)
            cursor.execute(texts.record_migration(file, self.source.library), prepare=False)
            return True

        return self.turns.take(self.doing, apply)

    def _functions(self, *, keep: bool) -> dict[str, Any]:
        self.doing = "Replacing the functions"
        grants = grants_query(self.source, keep=keep)

        def nothing_to_do(cursor: Cursor) -> bool:
            state = self._look(cursor)
            if state.stale_functions or (state.vanished_functions and not keep):
                return False
            return not cursor.execute(grants, prepare=False).fetchone()

        def replace(cursor: Cursor) -> dict[str, Any]:
            state = self._look(cursor)
            stale = [file for file in self.source.functions if file.name in state.stale_functions]
            self.turns.say(f"Functions: {len(stale)} to create or replace.")
            for file in stale:
                self.doing = f"Replacing the function {file.name}"
                if keep:
                    replace_beside(cursor, file, self.source.library)
                else:
                    cursor.execute(texts.function_text(file, self.source.library), prepare=False)
            self.doing = "Dropping the functions that no longer ship"
            dropped = () if keep else self._look(cursor).vanished_functions
            if dropped:
                cursor.execute(texts.vanished_text([file.name for file in self.source.functions]), prepare=False)
            if state.clock_replaced:
                cursor.execute("notify sluicegate_clock", prepare=False)
            self.doing = "Granting"
            return {
                "functions": tuple(file.name for file in stale),
                "dropped": dropped,
                "clock_restored": state.clock_replaced,
                "grants": sum(self._grant(cursor, grants) for _ in range(2)),
            }

        with self.turns.conn.transaction(), self.turns.cursor() as cursor:
            if nothing_to_do(cursor):
                return {}
        return self.turns.take(self.doing, replace)

    @staticmethod
    def _grant(cursor: Cursor, grants: str) -> int:
        changes = cursor.execute(grants, prepare=False).fetchall()
        for (statement,) in changes:
            cursor.execute(statement, prepare=False)
        return len(changes)


def _explained(error: psycopg.Error, doing: str, conn: psycopg.Connection[Any]) -> SluicegateError:
    said = error.diag.message_primary or str(error)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return Forbidden(
            f"{doing} is not permitted to the role {conn.info.user}: {said}.",
            next_step=f"Connect as the owner of the schema; for a first run a DBA may: grant create on database {conn.info.dbname} to {conn.info.user}",
        )
    if error.sqlstate is None or error.sqlstate[:2] in {"08", "57", "53"}:
        return Unavailable(
            f"{doing} was cut short: {said}",
            outcome_unknown=True,
            next_step="Run migrate again: it goes on where it was.",
        )
    detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
    return SluicegateError(
        f"{doing} failed, and nothing of this step was kept: {said}{detail}.",
        next_step="Earlier steps stand. Correct what the message names and run migrate again.",
    )

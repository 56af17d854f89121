"""Files marked nontransactional: ``create index concurrently`` and its like, which no transaction can hold.

Their row in ``sluicegate.migration`` is written first, without ``applied_at`` and with the backend that works on it. If
that backend is gone, or has been idle for half a minute, whoever comes next goes on from the first statement: every one of them
is repeatable, and an index that a killed build left invalid is dropped before it is built again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from sluicegate.errors import SluicegateError, Unavailable
from sluicegate.sql.sessions import DESCRIBE
from sluicegate.sql.source import MigrationFile
from sluicegate.sql.texts import literal
from sluicegate.sql.turn import Cursor, Patience, Turns

__all__ = ["apply_online"]

IDLE_SECONDS = 30

_WORKER = f"""\
select m.applied_at is not null, {DESCRIBE}
from sluicegate.migration m
left join pg_stat_activity a on a.pid = m.backend_pid and a.pid <> pg_backend_pid()
    and coalesce(a.backend_start = m.backend_start, true)
    and not coalesce(a.state = 'idle' and a.state_change < clock_timestamp() - make_interval(secs => %s), false)
where m.version = %s
"""
_BEGIN = """\
insert into sluicegate.migration as m (version, name, sha256, phase, minimum, library, backend_pid, backend_start)
select %s, %s, %s, %s, %s, %s, a.pid, a.backend_start from pg_stat_activity a where a.pid = pg_backend_pid()
on conflict (version) do update set backend_pid = excluded.backend_pid, backend_start = excluded.backend_start
"""
_END = "update sluicegate.migration set applied_at = clock_timestamp(), backend_pid = null, backend_start = null where version = %s"
_LET_GO = (
    "update sluicegate.migration set backend_pid = null, backend_start = null"
    " where version = %s and backend_pid = pg_backend_pid() and applied_at is null"
)
_VALID = """\
select i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid
where c.relname = %s and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = 'sluicegate')
"""


def apply_online(turns: Turns, file: MigrationFile, library: str) -> bool:
    """Apply ``file`` statement by statement, or wait for the migrator that does. False: somebody else has done it."""
    what = f"Migration {file.label}"
    _require_a_session(turns, what)
    if not _begin(turns, file, library, what):
        return False
    try:
        with _long_waits(turns), turns.cursor() as cursor:
            for statement in file.statements:
                turns.say(f"{what}: {' '.join(statement.split())[:100]}")
                _run(cursor, file, statement)
        turns.take(what, lambda cursor: cursor.execute(_END, (file.version,), prepare=False))
    except BaseException:
        with suppress(psycopg.Error), turns.cursor() as cursor:
            cursor.execute(_LET_GO, (file.version,), prepare=False)
        raise
    return True


def _require_a_session(turns: Turns, what: str) -> None:
    # A pooler invents the number it gives its clients. Behind one, each statement may meet another server process:
    # settings would leak into other people's sessions, and nobody could tell who works on the file.
    with turns.cursor() as cursor:
        row = cursor.execute("select pg_backend_pid()", prepare=False).fetchone()
    if row != (turns.conn.info.backend_pid,):
        raise Unavailable(
            f"{what} runs outside a transaction, which needs a session of its own; this connection goes through a pooler.",
            retriable=False,
            next_step="Run migrate with a DSN that names the PostgreSQL server itself.",
        )


def _begin(turns: Turns, file: MigrationFile, library: str, what: str) -> bool:
    patience = Patience(turns.say, turns.timeout)

    def begin(cursor: Cursor) -> tuple[bool, str | None]:
        applied, worker = cursor.execute(_WORKER, (IDLE_SECONDS, file.version), prepare=False).fetchone() or (
            False,
            None,
        )
        if not applied and worker is None:
            row = (file.version, file.name, file.sha256, file.phase, file.minimum, library)
            cursor.execute(_BEGIN, row, prepare=False)
        return applied, worker

    while True:
        applied, worker = turns.take(what, begin)
        if applied or worker is None:
            return not applied
        patience.wait(
            what,
            f"it is being applied by {worker}",
            "Let it finish and try again; if it hangs, end it with pg_terminate_backend(PID).",
        )


def _run(cursor: Cursor, file: MigrationFile, statement: str) -> None:
    index = file.index_of(statement)
    try:
        if index is not None and _is_valid(cursor, index) is False:
            cursor.execute(f"drop index concurrently if exists sluicegate.{index}", prepare=False)
        cursor.execute(statement, prepare=False)
    except psycopg.errors.LockNotAvailable as error:
        raise Unavailable(
            f"Migration {file.label} gave up: transactions older than it did not end in time.",
            next_step="Run sluicegate doctor to see the oldest snapshot and who holds it, then migrate again: it goes on from here.",
        ) from error
    if index is not None and not _is_valid(cursor, index):
        raise SluicegateError(
            f"Migration {file.label}: the index {index} was built but is not valid.",
            next_step="Run: sluicegate migrate",
        )


def _is_valid(cursor: Cursor, index: str) -> bool | None:
    row = cursor.execute(_VALID, (index,), prepare=False).fetchone()
    return None if row is None else bool(row[0])


@contextmanager
def _long_waits(turns: Turns) -> Iterator[None]:
    # A concurrent build waits for older transactions without holding anybody up, and starts over when it gives up.
    wanted = {
        "lock_timeout": f"{max(2, round(turns.timeout))}s",
        "statement_timeout": "0",
        "search_path": "pg_catalog, pg_temp",
    }
    with turns.cursor() as cursor:
        before = {name: (cursor.execute(f"show {name}", prepare=False).fetchone() or ("",))[0] for name in wanted}
        for name, value in wanted.items():
            cursor.execute(f"set {name} = {value if name == 'search_path' else literal(value)}", prepare=False)
    try:
        yield
    finally:
        with suppress(psycopg.Error), turns.cursor() as cursor:
            for name, value in before.items():
                cursor.execute("select set_config(%s, %s, false)", (name, value), prepare=False)

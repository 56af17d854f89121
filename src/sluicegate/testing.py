"""Helpers for tests of code that uses Sluicegate.

Run what has been enqueued, inline, and look at what would have been:

    await run_jobs(client, app)                                     does all that can start now, as a worker would
    job = await assert_enqueued(client, "mail", kind="confirm", payload={"order": 18})
    await assert_not_enqueued(client, "mail")

Move the clock of the database that all decisions are made by:

    set_clock(dsn, datetime(2026, 3, 8, 9, 59, 57, tzinfo=UTC))     the clock runs on from there
    freeze_clock(dsn)                                               and now stands still
    advance_clock(client, timedelta(hours=1))                       one hour later, still standing
    restore_clock(dsn)                                              the real time again; ``migrate`` does the same

    with clock_at(dsn, when, frozen=True):                          restored at the end; ``async with`` works too
        …

Each takes a DSN, a client, asynchronous or not, or a psycopg connection, and returns when the clock has moved; only with an
``AsyncConnection`` it returns an awaitable. They replace the function
``sluicegate.clock()``, which only the owner of the schema may do, and notify ``sluicegate_clock``, so that everything
that sleeps until an instant looks again. The whole database is moved, so give each test a database of its own. On a
connection that is in a transaction the clock moves for others when that commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

import psycopg
from psycopg.rows import tuple_row

from sluicegate.errors import Forbidden, InvalidArgument, NotFound, SchemaMismatch, SluicegateError, Unavailable
from sluicegate.model import JobState
from sluicegate.ops import validate
from sluicegate.sql.source import shipped_function

if TYPE_CHECKING:
    from sluicegate.client import Client
    from sluicegate.model import FullJob
    from sluicegate.sync_client import SyncClient
    from sluicegate.worker.events import WorkerEvent, WorkerReport
    from sluicegate.worker.handlers import App

    Target = str | psycopg.Connection[Any] | Client | SyncClient

__all__ = [
    "advance_clock",
    "assert_enqueued",
    "assert_not_enqueued",
    "clock_at",
    "freeze_clock",
    "restore_clock",
    "run_jobs",
    "set_clock",
]

_ANY: Any = object()
_WAITING: tuple[JobState, ...] = ("scheduled", "pending")

_TARGET = "Give it a DSN, a client that is open, or a connection of psycopg."
Row = tuple[Any, ...]
# What to run, one statement after the other in one transaction; each row that comes back is sent in.
Steps = Generator[tuple[str, dict[str, object]], Row | None, None]

# Offsets are in seconds: a day that is added to an instant has 23 or 25 hours in some zones.
_REPLACEMENT = """\
select format(
    'create or replace function sluicegate.clock() returns timestamptz language sql volatile parallel safe '
    'set search_path = sluicegate, pg_temp as %%L',
    case when w.still then format('/* standing still */ select timestamptz %%L',
        to_char(w.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
    else format('select clock_timestamp() + interval %%L', extract(epoch from w.at - clock_timestamp()) || ' seconds')
    end)
from (
    select coalesce(%(when)s::timestamptz, c.now) + %(microseconds)s::bigint * interval '1 microsecond' as at,
        coalesce(%(still)s::boolean, starts_with(p.prosrc, '/* standing still */')) as still
    from (select sluicegate.clock() as now) c, pg_proc p
    where p.oid = 'sluicegate.clock()'::regprocedure
) w
"""


def _move(*, when: datetime | None = None, by: timedelta = timedelta(), still: bool | None = None) -> Steps:
    values: dict[str, object] = {"when": when, "microseconds": by // timedelta(microseconds=1), "still": still}
    row = yield _REPLACEMENT, values
    assert row is not None
    yield row[0], {}
    yield "notify sluicegate_clock", {}


def _restore() -> Steps:
    yield shipped_function("clock").text, {}
    yield "notify sluicegate_clock", {}


def _aware(when: datetime) -> datetime:
    if not isinstance(when, datetime):
        validate.refuse("when", f"is {validate.shown(when)}, not a datetime", "Give it a datetime with a tzinfo.")
    if when.utcoffset() is None:
        raise InvalidArgument(
            f"{when} has no time zone, so it is no instant.", field="when", next_step="Give it a tzinfo."
        )
    return when


def _explained(error: psycopg.Error) -> SluicegateError:
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return Forbidden(
            f"Only the owner of the schema may replace its clock: {error.diag.message_primary}.",
            next_step="Connect as the role that ran sluicegate migrate.",
        )
    if isinstance(error, (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName)):
        return SchemaMismatch("The database has no Sluicegate clock.", next_step="Run: sluicegate migrate")
    if error.sqlstate is None or error.sqlstate[:2] in {"08", "57"}:
        return Unavailable(f"The database did not answer: {error}", next_step="Check the DSN and that the server runs.")
    return SluicegateError(f"The clock could not be replaced: {error.diag.message_primary or error}.")


def _run(conn: psycopg.Connection[Any], steps: Steps) -> None:
    row: Row | None = None
    with conn.transaction(), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        query, values = next(steps)
        while True:
            cursor.execute(query, values or None, prepare=False)
            row = cursor.fetchone() if cursor.description else None
            try:
                query, values = steps.send(row)
            except StopIteration:
                return


async def _run_async(conn: psycopg.AsyncConnection[Any], steps: Steps) -> None:
    row: Row | None = None
    try:
        async with conn.transaction(), psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
            query, values = next(steps)
            while True:
                await cursor.execute(query, values or None, prepare=False)
                row = await cursor.fetchone() if cursor.description else None
                try:
                    query, values = steps.send(row)
                except StopIteration:
                    return
    except psycopg.Error as error:
        raise _explained(error) from error


def _apply(target: Target | psycopg.AsyncConnection[Any], steps: Steps) -> Awaitable[None] | None:
    if isinstance(target, psycopg.AsyncConnection):
        return _run_async(target, steps)
    dsn = target if isinstance(target, str) else getattr(target, "dsn", None)
    try:
        if isinstance(target, psycopg.Connection):
            _run(target, steps)
        elif isinstance(dsn, str):
            with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as conn:
                _run(conn, steps)
        else:
            validate.refuse("target", f"is {validate.shown(target)}, which has no clock to move", _TARGET)
    except psycopg.Error as error:
        raise _explained(error) from error
    return None


@overload
def set_clock(target: Target, when: datetime) -> None: ...
@overload
def set_clock(target: psycopg.AsyncConnection[Any], when: datetime) -> Awaitable[None]: ...
def set_clock(target: Target | psycopg.AsyncConnection[Any], when: datetime) -> Awaitable[None] | None:
    """Let the clock show ``when`` and run on from there.

    ``when`` needs a time zone (else InvalidArgument). Raises Forbidden when the role does not own the schema, and
    SchemaMismatch when there is none.
    """
    return _apply(target, _move(when=_aware(when), still=False))


@overload
def freeze_clock(target: Target, when: datetime | None = None) -> None: ...
@overload
def freeze_clock(target: psycopg.AsyncConnection[Any], when: datetime | None = None) -> Awaitable[None]: ...
def freeze_clock(target: Target | psycopg.AsyncConnection[Any], when: datetime | None = None) -> Awaitable[None] | None:
    """Let the clock stand still at ``when``, or at what it shows. Raises as ``set_clock``."""
    return _apply(target, _move(when=None if when is None else _aware(when), still=True))


@overload
def advance_clock(target: Target, by: timedelta) -> None: ...
@overload
def advance_clock(target: psycopg.AsyncConnection[Any], by: timedelta) -> Awaitable[None]: ...
def advance_clock(target: Target | psycopg.AsyncConnection[Any], by: timedelta) -> Awaitable[None] | None:
    """Move the clock by ``by`` (negative: back); it goes on running or standing as before. Raises as ``set_clock``."""
    if not isinstance(by, timedelta):
        validate.refuse(
            "by", f"is {validate.shown(by)}, not a timedelta", "Write timedelta(seconds=3600), for example."
        )
    return _apply(target, _move(by=by))


@overload
def restore_clock(target: Target) -> None: ...
@overload
def restore_clock(target: psycopg.AsyncConnection[Any]) -> Awaitable[None]: ...
def restore_clock(target: Target | psycopg.AsyncConnection[Any]) -> Awaitable[None] | None:
    """Give the database the real time again. Raises as ``set_clock``."""
    return _apply(target, _restore())


class clock_at(AbstractContextManager[None], AbstractAsyncContextManager[None]):  # noqa: N801 - used as a function
    """For the length of a block the clock shows ``when`` and runs on, or stands still if ``frozen``.

    ``with`` takes a DSN, a client or a connection, ``async with`` an ``AsyncConnection``. The real time returns at the end, also
    if the clock had been moved before.
    """

    def __init__(self, target: Target | psycopg.AsyncConnection[Any], when: datetime, *, frozen: bool = False) -> None:
        self._target = target
        self._when = _aware(when)
        self._frozen = frozen

    def __enter__(self) -> None:
        assert not isinstance(self._target, psycopg.AsyncConnection), "an AsyncConnection needs async with"
        _apply(self._target, _move(when=self._when, still=self._frozen))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _apply(self._target, _restore())

    async def __aenter__(self) -> None:
        moved = _apply(self._target, _move(when=self._when, still=self._frozen))
        if moved is not None:
            await moved

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        restored = _apply(self._target, _restore())
        if restored is not None:
            await restored


async def run_jobs(client: Client, app: App, *, failures: bool = False) -> WorkerReport:
    """Do every job of the app's queues that can start now, and those they enqueue, in this process; then return.

    What is scheduled for later or held back by a budget stays: move the clock, and call it again. AssertionError with
    the handler's traceback if an attempt fails, or for a job that the app has no handler for, unless ``failures`` are
    expected. Leaves signals alone.
    """
    from sluicegate.worker.worker import Worker

    __tracebackhide__ = True
    failed: list[str] = []

    def heard(event: WorkerEvent) -> None:
        if event.claim is None:
            return
        job = event.claim.job
        if event.kind in ("failed", "dead_letter") or app.find(job.queue, job.kind) is None:
            failed.append(f"job {job.id} of {job.queue}: {event.message}")

    report = await Worker(client, app, drain=True, on_event=heard).run(signals=False)
    if failed and not failures:
        raise AssertionError("\n\n".join(failed))
    return report


async def assert_enqueued(
    client: Client, queue: str, *, kind: str | None = None, payload: Any = _ANY, number: int | None = None
) -> FullJob:
    """Assert that jobs like this wait in the queue, exactly ``number`` if given; gives the newest of them.

    As with every coroutine, without ``await`` nothing is asserted.
    """
    __tracebackhide__ = True
    found = await _waiting(client, queue, kind, payload)
    wanted = f"{'a job' if number is None else f'{number} jobs'} of {queue}{_like(kind, payload)}"
    if not found or (number is not None and len(found) != number):
        others = _shown(await _waiting(client, queue, None, _ANY))
        raise AssertionError(f"{wanted} should wait, and {len(found)} do. In the queue (kind, payload): {others}")
    return found[0]


async def assert_not_enqueued(client: Client, queue: str, *, kind: str | None = None, payload: Any = _ANY) -> None:
    """Assert that no job like this waits in the queue. Without ``await`` nothing is asserted."""
    __tracebackhide__ = True
    found = await _waiting(client, queue, kind, payload)
    if found:
        raise AssertionError(
            f"no job of {queue}{_like(kind, payload)} should wait, and {len(found)} do (kind, payload): {_shown(found)}"
        )


def _shown(jobs: list[FullJob]) -> list[tuple[str, Any]]:
    """What tells jobs apart."""
    return [(job.kind, job.payload) for job in jobs]


async def _waiting(client: Client, queue: str, kind: str | None, payload: Any) -> list[FullJob]:
    jobs: list[FullJob] = []
    for state in _WAITING:
        before: int | None = None
        while True:
            try:
                page = await client.list_jobs(queue=queue, state=state, kind=kind, limit=200, before_id=before)
            except NotFound:  # the first enqueue makes a queue
                return []
            jobs += [(await client.get_job(row.id)).job for row in page.jobs]
            before = page.next_before_id
            if before is None:
                break
    found = [job for job in jobs if payload is _ANY or job.payload == payload]
    return sorted(found, key=lambda job: job.id, reverse=True)


def _like(kind: str | None, payload: Any) -> str:
    told = [f"kind {kind}"] if kind is not None else []
    told += [f"payload {payload!r}"] if payload is not _ANY else []
    return f" with {' and '.join(told)}" if told else ""

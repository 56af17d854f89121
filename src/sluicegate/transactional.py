"""Enqueue in a transaction of one's own: on a connection of psycopg, asyncpg, SQLAlchemy or Django, as it is.

    with connection.transaction():
        connection.execute("insert into orders …")
        enqueue_in(connection, NewJob("mail", {"order": 18}))

The jobs become visible when that transaction commits, and are gone if it is rolled back. With an asynchronous
connection the call is awaited: ``await enqueue_in(connection, …)``.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, overload

import psycopg
from psycopg.rows import scalar_row

from sluicegate.errors import InvalidArgument
from sluicegate.model import EnqueuedMany, NewJob
from sluicegate.ops import answers, requests, validate
from sluicegate.store.faults import refusal

__all__ = ["enqueue_in"]

_CALL = (
    "select sluicegate.enqueue_many(p_jobs => cast(cast({jobs} as text) as jsonb), p_request_id => cast({request_id} as text),"
    " p_scope => cast({scope} as text), p_wake => cast({wake} as boolean))::text"
)
_PYFORMAT = _CALL.format(jobs="%(jobs)s", request_id="%(request_id)s", scope="%(scope)s", wake="%(wake)s")
_NAMED = _CALL.format(jobs=":jobs", request_id=":request_id", scope=":scope", wake=":wake")
_NUMBERED = _CALL.format(jobs="$1", request_id="$2", scope="$3", wake="$4")
_ORDER = ("jobs", "request_id", "scope", "wake")

Arguments = dict[str, Any]


@overload
def enqueue_in(
    connection: psycopg.Connection[Any],
    jobs: NewJob | Iterable[NewJob],
    *,
    scope: str = ...,
    request_id: str | None = ...,
    wake: bool = ...,
) -> EnqueuedMany: ...
@overload
def enqueue_in(
    connection: psycopg.AsyncConnection[Any],
    jobs: NewJob | Iterable[NewJob],
    *,
    scope: str = ...,
    request_id: str | None = ...,
    wake: bool = ...,
) -> Awaitable[EnqueuedMany]: ...
@overload
def enqueue_in(
    connection: Any,
    jobs: NewJob | Iterable[NewJob],
    *,
    scope: str = ...,
    request_id: str | None = ...,
    wake: bool = ...,
) -> Any: ...
def enqueue_in(
    connection: Any,
    jobs: NewJob | Iterable[NewJob],
    *,
    scope: str = "endpoint:default",
    request_id: str | None = None,
    wake: bool = True,
) -> EnqueuedMany | Awaitable[EnqueuedMany]:
    """Add one job or up to 10,000, all or none, in the transaction that ``connection`` is in.

    ``connection`` is psycopg's ``Connection`` or ``AsyncConnection``, asyncpg's ``Connection``, SQLAlchemy's
    ``Connection``, ``Session``, ``AsyncConnection`` or ``AsyncSession``, or Django's. For asynchronous ones the answer
    has to be awaited. Raises InvalidArgument for what is none of these, and for jobs as ``Client.enqueue_many`` does,
    before anything is sent; NotFound, Conflict, Forbidden when the database refuses, after which the transaction can
    only be rolled back, as after any error; errors of the driver as they are.
    """
    if not isinstance(jobs, Iterable | NewJob):
        validate.refuse(
            "jobs", f"is {validate.shown(jobs)}, and no jobs", 'Pass sluicegate.NewJob("queue", …), or several.'
        )
    several = [jobs] if isinstance(jobs, NewJob) else list(jobs)
    arguments = dict(requests.enqueue_many(several, scope=scope, request_id=request_id))
    # Null tells in any case: who knows how long this transaction goes on?
    arguments["wake"] = None if validate.flag(wake, "wake") else False
    return _caller(connection)(connection, arguments)


def _caller(connection: Any) -> Callable[[Any, Arguments], EnqueuedMany | Awaitable[EnqueuedMany]]:
    """How it is done on such a connection, told by the module its class is from: none of them is imported here."""
    for kind in type(connection).__mro__:
        for (module, name), call in _CALLERS.items():
            if kind.__module__.split(".")[0] == module and kind.__name__ == name:
                return call
    raise InvalidArgument(
        f"{type(connection).__module__}.{type(connection).__qualname__} is no connection that is known here.",
        field="connection",
        next_step="Pass one of psycopg, asyncpg, SQLAlchemy or Django, or call sluicegate.enqueue_many in SQL.",
    )


def _answer(text: Any) -> EnqueuedMany:
    return answers.enqueued_many(json.loads(text) if isinstance(text, str | bytes) else text)


def _raise_ours(error: Exception) -> None:
    """What our functions refuse, as our error; anything else is left to the caller's own handling."""
    # SQLAlchemy and Django wrap what the driver raised, some of them twice.
    found: Any = error
    while (inner := getattr(found, "orig", None) or found.__cause__) is not None:
        found = inner
    code = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
    if isinstance(code, str) and code.startswith("SG"):
        # psycopg keeps what PostgreSQL said in ``diag``, asyncpg in the error itself.
        diag = getattr(found, "diag", None)
        if diag is not None:
            said, field, hint = diag.message_primary, diag.message_detail, diag.message_hint
        else:
            said, field, hint = (getattr(found, name, None) for name in ("message", "detail", "hint"))
        raise refusal(code, said or str(found), field=field, hint=hint) from error


def _for(cursor: Any, arguments: Arguments) -> tuple[str, Any]:
    """What a cursor of the kind that the connection makes takes: raw ones know numbered parameters only."""
    if isinstance(cursor, psycopg.RawCursor | psycopg.AsyncRawCursor):
        return _NUMBERED, [arguments[name] for name in _ORDER]
    return _PYFORMAT, arguments


def _psycopg(connection: Any, arguments: Arguments) -> EnqueuedMany:
    try:
        with connection.cursor(row_factory=scalar_row) as cursor:
            return _answer(cursor.execute(*_for(cursor, arguments)).fetchone())
    except Exception as error:
        _raise_ours(error)
        raise


async def _psycopg_async(connection: Any, arguments: Arguments) -> EnqueuedMany:
    try:
        async with connection.cursor(row_factory=scalar_row) as cursor:
            await cursor.execute(*_for(cursor, arguments))
            return _answer(await cursor.fetchone())
    except Exception as error:
        _raise_ours(error)
        raise


async def _asyncpg(connection: Any, arguments: Arguments) -> EnqueuedMany:
    try:
        return _answer(await connection.fetchval(_NUMBERED, *(arguments[name] for name in _ORDER)))
    except Exception as error:
        _raise_ours(error)
        raise


def _sqlalchemy(connection: Any, arguments: Arguments) -> EnqueuedMany:
    from sqlalchemy import text

    try:
        return _answer(connection.execute(text(_NAMED), arguments).scalar_one())
    except Exception as error:
        _raise_ours(error)
        raise


async def _sqlalchemy_async(connection: Any, arguments: Arguments) -> EnqueuedMany:
    from sqlalchemy import text

    try:
        return _answer((await connection.execute(text(_NAMED), arguments)).scalar_one())
    except Exception as error:
        _raise_ours(error)
        raise


def _django(connection: Any, arguments: Arguments) -> EnqueuedMany:
    try:
        with connection.cursor() as cursor:
            cursor.execute(_PYFORMAT, arguments)
            return _answer(cursor.fetchone()[0])
    except Exception as error:
        _raise_ours(error)
        raise


_CALLERS: dict[tuple[str, str], Callable[[Any, Arguments], EnqueuedMany | Awaitable[EnqueuedMany]]] = {
    ("psycopg", "AsyncConnection"): _psycopg_async,
    ("psycopg", "Connection"): _psycopg,
    ("asyncpg", "Connection"): _asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _asyncpg,
    ("sqlalchemy", "AsyncConnection"): _sqlalchemy_async,
    ("sqlalchemy", "AsyncSession"): _sqlalchemy_async,
    ("sqlalchemy", "async_scoped_session"): _sqlalchemy_async,
    ("sqlalchemy", "Connection"): _sqlalchemy,
    ("sqlalchemy", "Session"): _sqlalchemy,
    ("sqlalchemy", "scoped_session"): _sqlalchemy,
    ("django", "BaseDatabaseWrapper"): _django,
    ("django", "ConnectionProxy"): _django,
}

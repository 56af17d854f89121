"""Waiting for a fact, never for a second."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg

T = TypeVar("T")

_PAUSE = 0.01


def eventually(look: Callable[[], T], what: str, timeout: float = 30) -> T:
    """Call ``look`` until it returns something true, and return that.

    ``timeout`` is in seconds; AssertionError names ``what`` was waited for.
    """
    deadline = time.monotonic() + timeout
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {timeout} s in vain: {what}; last seen: {seen!r}"
        time.sleep(_PAUSE)
    return seen


async def eventually_async(look: Callable[[], Awaitable[T]], what: str, timeout: float = 30) -> T:
    """As ``eventually``, for a coroutine function."""
    deadline = time.monotonic() + timeout
    while not (seen := await look()):
        assert time.monotonic() < deadline, f"waited {timeout} s in vain: {what}; last seen: {seen!r}"
        await asyncio.sleep(_PAUSE)
    return seen


_BLOCKERS = """
    select pg_blocking_pids(%(pid)s), a.state, a.wait_event_type, a.wait_event, left(a.query, 120)
    from (select 1) one left join pg_stat_activity a on a.pid = %(pid)s
"""


async def wait_blocked(
    watcher: psycopg.AsyncConnection[tuple[object, ...]], pid: int, *, by: int | None = None, timeout: float = 30
) -> list[int]:
    """Return the pids that block backend ``pid``, as soon as there are any (or as soon as ``by`` is among them).

    ``watcher`` is a connection of its own in autocommit mode. AssertionError after ``timeout`` seconds says what the
    backend was doing instead.
    """
    deadline = time.monotonic() + timeout
    while True:
        row = await (await watcher.execute(_BLOCKERS, {"pid": pid})).fetchone()
        assert row is not None
        blockers, *activity = row
        assert isinstance(blockers, list)
        if blockers and (by is None or by in blockers):
            return blockers
        assert time.monotonic() < deadline, (
            f"backend {pid} was not blocked{'' if by is None else f' by {by}'} within {timeout} s: {activity}"
        )
        await asyncio.sleep(_PAUSE)

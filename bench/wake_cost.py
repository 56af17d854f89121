"""What waking workers costs whoever enqueues: the same calls with the function that wakes, and with one that does nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg

from bench.drivers import Clients, Psycopg, Session
from bench.ours import Enqueues

_CHANNEL = "sluicegate_jobs"
_FOUND = "select to_regprocedure('sluicegate.wake_workers(bigint[])')::oid"
_TEXT = "select pg_get_functiondef($1)"
_SHAPE = "select pg_get_function_arguments($1)"
_NOTHING = """
    create or replace function sluicegate.wake_workers({arguments}) returns void language plpgsql
    as 'begin return; end'
"""


class WokenEnqueues(Enqueues):
    """Single jobs by the library's store, each with its request id; before each run the function is what ``text`` makes it."""

    def __init__(self, key: str, clients: Clients, number: int, text: str) -> None:
        super().__init__(clients, "psycopg", number, named=True)
        self.key = key
        self._text = text

    async def fill(self, session: Session, depth: int) -> None:
        assert isinstance(session, Psycopg)
        await session.connection.execute(self._text.encode())
        await super().fill(session, depth)


async def on_and_off(clients: Clients, number: int) -> tuple[WokenEnqueues, WokenEnqueues] | None:
    """Enqueues that wake, and the same that do not; None where nothing wakes."""
    (session,) = await clients.get("psycopg", 1)
    oid = await session.value(_FOUND)
    if oid is None:
        return None
    text = await session.value(_TEXT, oid)
    nothing = _NOTHING.format(arguments=await session.value(_SHAPE, oid))
    return (
        WokenEnqueues(f"enqueue with wake-ups, {number} x 1", clients, number, text),
        WokenEnqueues(f"enqueue without wake-ups, {number} x 1", clients, number, nothing),
    )


@asynccontextmanager
async def listener(dsn: str) -> AsyncIterator[None]:
    """Somebody who is told of every wake-up, and does nothing about it."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(f"listen {_CHANNEL}")

        async def hear() -> None:
            async for _ in connection.notifies():
                pass

        hearing = asyncio.create_task(hear())
        try:
            yield
        finally:
            hearing.cancel()
            with suppress(asyncio.CancelledError):
                await hearing

"""Where calls get their connections."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic
from typing import Protocol

import psycopg_pool
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from sluicegate.store import faults
from sluicegate.store.calls import AsyncCalls
from sluicegate.store.dsn import connect_arguments

# The pool's own pauses between attempts to connect would double up to minutes, and a database that is back be missed.
_RECONNECT_SECONDS = 2.0
_ASK_AGAIN_SECONDS = 1.0


class AsyncConnections(Protocol):
    """Any source of connections for a store."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection to make one call on."""


class AsyncPool:
    """Between ``min_size`` and ``max_size`` connections in autocommit, without prepared statements.

    That is all a pooler in transaction mode needs. ``timeout`` is how many seconds a call waits for a connection.
    """

    def __init__(self, dsn: str, calls: AsyncCalls, *, min_size: int, max_size: int, timeout: float) -> None:
        self._calls = calls
        self._timeout = timeout
        self._pool = AsyncConnectionPool(
            kwargs=connect_arguments(dsn),
            min_size=min_size,
            max_size=max_size,
            timeout=timeout,
            reconnect_timeout=_RECONNECT_SECONDS,
            name="sluicegate",
            open=False,
        )

    async def open(self) -> None:
        """Start connecting, in the background."""
        try:
            await self._pool.open()
        except BaseException:
            await self._pool.close()
            raise

    async def close(self) -> None:
        """Close the connections. Doing it twice is fine."""
        await self._pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """A connection of the pool. Raises Unavailable if none becomes free in time."""
        try:
            connection = await self._get()
        except (psycopg_pool.PoolTimeout, psycopg_pool.PoolClosed) as error:
            raise faults.from_pool(error) from error
        self._calls.sent()
        try:
            yield connection
        finally:
            await self._pool.putconn(connection)
            if connection.closed:
                # It is rarely alone, as after a restart of the server. The others are not asked whether they work: one
                # whose other end has gone silently would never answer.
                await self._pool.drain()

    async def _get(self) -> AsyncConnection:
        """A connection; whoever waits for one makes the pool try to connect anew, about once a second."""
        deadline = monotonic() + self._timeout
        while (left := deadline - monotonic()) > _ASK_AGAIN_SECONDS:
            with contextlib.suppress(psycopg_pool.PoolTimeout):
                return await self._pool.getconn(_ASK_AGAIN_SECONDS)
        return await self._pool.getconn(max(left, 0.0))

"""Where calls get their connections: a pool, or one connection that the caller lends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import psycopg
import psycopg_pool
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from sluicegate.store import faults
from sluicegate.store.calls import AsyncCalls
from sluicegate.store.dsn import connect_arguments


class AsyncConnections(Protocol):
    """Any source of connections for a store."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection to make one call on."""


class AsyncBorrowed:
    """One connection of the caller's, so that a call is part of the caller's own transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        yield self._connection


class AsyncPool:
    """Between ``min_size`` and ``max_size`` connections in autocommit, without prepared statements.

    That is all a pooler in transaction mode needs. ``timeout`` is how many seconds a call waits for a connection.
    """

    def __init__(self, dsn: str, *, min_size: int, max_size: int, timeout: float) -> None:
        self.calls = AsyncCalls()
        self._dsn = dsn
        self._sizes = (min_size, max_size)
        self._timeout = timeout
        self._pool: AsyncConnectionPool | None = None

    async def open(self) -> None:
        """Connect once to learn of any fault at once, then fill the pool. Raises Unavailable, InvalidArgument."""
        arguments = connect_arguments(self._dsn)
        try:
            first = await AsyncConnection.connect(**arguments)
        except psycopg.Error as error:
            raise faults.from_connect(error) from error
        await first.close()
        least, most = self._sizes
        self._pool = AsyncConnectionPool(
            kwargs=arguments, min_size=least, max_size=most, timeout=self._timeout, name="sluicegate", open=False
        )
        await self._pool.open()

    async def close(self) -> None:
        """Let every call end, then close the connections. Doing it twice is fine."""
        await self.calls.drain()
        if self._pool is not None:
            await self._pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """A connection of the pool. Raises Unavailable if none becomes free in time."""
        if self._pool is None:
            raise faults.from_pool(psycopg_pool.PoolClosed())
        try:
            connection = await self._pool.getconn()
        except (psycopg_pool.PoolTimeout, psycopg_pool.PoolClosed) as error:
            raise faults.from_pool(error) from error
        self.calls.sent()
        try:
            yield connection
        finally:
            await self._pool.putconn(connection)

    async def renew(self) -> None:
        """Replace the connections that have died, as after a restart of the server."""
        self.calls.sent()  # breaking the check off would lose the connections it holds
        if self._pool is not None:
            await self._pool.check()

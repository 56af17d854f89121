# Generated from store/async_connections.py by tools/unasync.py: change that file, then run it.
"""Where calls get their connections."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import Protocol

import psycopg_pool
from psycopg import Connection
from psycopg_pool import ConnectionPool

from sluicegate.store import faults
from sluicegate.store.calls import SyncCalls
from sluicegate.store.dsn import connect_arguments

# The pool's own pauses between attempts to connect would double up to minutes, and a database that is back be missed.
_RECONNECT_SECONDS = 2.0
_ASK_AGAIN_SECONDS = 1.0


class SyncConnections(Protocol):
    """Any source of connections for a store."""

    def connection(self) -> AbstractContextManager[Connection]:
        """A connection to make one call on."""


class SyncPool:
    """Between ``min_size`` and ``max_size`` connections in autocommit, without prepared statements.

    That is all a pooler in transaction mode needs. ``timeout`` is how many seconds a call waits for a connection.
    """

    def __init__(self, dsn: str, calls: SyncCalls, *, min_size: int, max_size: int, timeout: float) -> None:
        self._calls = calls
        self._timeout = timeout
        self._pool = ConnectionPool(
            kwargs=connect_arguments(dsn),
            min_size=min_size,
            max_size=max_size,
            timeout=timeout,
            reconnect_timeout=_RECONNECT_SECONDS,
            name="sluicegate",
            open=False,
        )

    def open(self) -> None:
        """Start connecting, in the background."""
        try:
            self._pool.open()
        except BaseException:
            self._pool.close()
            raise

    def close(self) -> None:
        """Close the connections. Doing it twice is fine."""
        self._pool.close()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection of the pool. Raises Unavailable if none becomes free in time."""
        try:
            connection = self._get()
        except (psycopg_pool.PoolTimeout, psycopg_pool.PoolClosed) as error:
            raise faults.from_pool(error) from error
        self._calls.sent()
        try:
            yield connection
        finally:
            self._pool.putconn(connection)
            if connection.closed:
                # It is rarely alone, as after a restart of the server. The others are not asked whether they work: one
                # whose other end has gone silently would never answer.
                self._pool.drain()

    def _get(self) -> Connection:
        """A connection; whoever waits for one makes the pool try to connect anew, about once a second."""
        deadline = monotonic() + self._timeout
        while (left := deadline - monotonic()) > _ASK_AGAIN_SECONDS:
            with contextlib.suppress(psycopg_pool.PoolTimeout):
                return self._pool.getconn(_ASK_AGAIN_SECONDS)
        return self._pool.getconn(max(left, 0.0))

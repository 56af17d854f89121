"""Notifications of the database, on a connection that does nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg
from psycopg.sql import SQL, Identifier

from sluicegate.store import faults
from sluicegate.store.dsn import connect_arguments


async def listen(dsn: str, channels: Sequence[str], heard: Callable[[], object]) -> None:
    """Call ``heard`` for each notification on one of ``channels``, and once when it starts: some may have been missed before.

    Goes on until it is cancelled or the connection is lost. Never in a transaction, which would hold notifications
    up. A pooler in transaction mode passes none on, so whoever listens has to look by itself now and then as well.
    Raises Unavailable, or another SluicegateError if listening is refused.
    """
    try:
        connection = await psycopg.AsyncConnection.connect(**connect_arguments(dsn))
    except psycopg.Error as error:
        raise faults.from_connect(error) from error
    try:
        for channel in channels:
            await connection.execute(SQL("listen {}").format(Identifier(channel)))
        heard()
        async for _ in connection.notifies():
            heard()
    except psycopg.Error as error:
        raise faults.from_call(error, lost=connection.closed) from error
    finally:
        await connection.close()

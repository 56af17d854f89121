"""Notifications of the database, on a connection that does nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import psycopg
from psycopg.sql import SQL, Identifier

from sluicegate.errors import Unavailable
from sluicegate.store import faults
from sluicegate.store.dsn import connect_arguments

# A connection whose other end has gone silently would be listened on for ever: after so many seconds without a
# notification it is asked whether it is still there, and has so many to answer.
_SILENCE = 30.0
_PATIENCE = 10.0


async def listen(dsn: str, channels: Sequence[str], heard: Callable[[str, str], object]) -> None:
    """Call ``heard`` with channel and payload of each notification, and once with empty ones when it starts: some may
    have been missed before.

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
        heard("", "")
        while True:
            async for notice in connection.notifies(timeout=_SILENCE):
                heard(notice.channel, notice.payload)
            async with asyncio.timeout(_PATIENCE):
                await connection.execute("select 1")
    except TimeoutError:
        raise Unavailable(f"PostgreSQL has not answered for {_PATIENCE:g} s.") from None
    except psycopg.Error as error:
        raise faults.from_call(error, lost=connection.closed) from error
    finally:
        await connection.close()

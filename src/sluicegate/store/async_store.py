"""One method for each SQL function: its arguments by name as ``statements`` lists them, its answer as JSON gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import scalar_row

from sluicegate.store import faults, statements
from sluicegate.store.async_connections import AsyncConnections

Arguments = Mapping[str, Any]
Answer = Any


class AsyncStore:
    """Calls the SQL functions on connections from ``connections``; every fault is raised as one of our errors."""

    def __init__(self, connections: AsyncConnections) -> None:
        self._connections = connections

    async def enqueue(self, arguments: Arguments) -> Answer:
        return await self._call(statements.ENQUEUE, arguments)

    async def enqueue_many(self, arguments: Arguments) -> Answer:
        return await self._call(statements.ENQUEUE_MANY, arguments)

    async def claim(self, arguments: Arguments) -> Answer:
        return await self._call(statements.CLAIM, arguments)

    async def claim_job(self, arguments: Arguments) -> Answer:
        return await self._call(statements.CLAIM_JOB, arguments)

    async def complete(self, arguments: Arguments) -> Answer:
        return await self._call(statements.COMPLETE, arguments)

    async def fail(self, arguments: Arguments) -> Answer:
        return await self._call(statements.FAIL, arguments)

    async def release(self, arguments: Arguments) -> Answer:
        return await self._call(statements.RELEASE, arguments)

    async def heartbeat(self, arguments: Arguments) -> Answer:
        return await self._call(statements.HEARTBEAT, arguments)

    async def heartbeat_many(self, arguments: Arguments) -> Answer:
        return await self._call(statements.HEARTBEAT_MANY, arguments)

    async def retry(self, arguments: Arguments) -> Answer:
        return await self._call(statements.RETRY, arguments)

    async def cancel(self, arguments: Arguments) -> Answer:
        return await self._call(statements.CANCEL, arguments)

    async def reap(self, arguments: Arguments) -> Answer:
        return await self._call(statements.REAP, arguments)

    async def prune(self, arguments: Arguments) -> Answer:
        return await self._call(statements.PRUNE, arguments)

    async def list_jobs(self, arguments: Arguments) -> Answer:
        return await self._call(statements.LIST_JOBS, arguments)

    async def get_job(self, arguments: Arguments) -> Answer:
        return await self._call(statements.GET_JOB, arguments)

    async def queue_stats(self, arguments: Arguments) -> Answer:
        return await self._call(statements.QUEUE_STATS, arguments)

    async def clock(self) -> Answer:
        return await self._call(statements.CLOCK, {})

    async def _call(self, statement: str, arguments: Arguments) -> Answer:
        async with self._connections.connection() as connection:
            try:
                async with connection.cursor(row_factory=scalar_row) as cursor:
                    await cursor.execute(statement, arguments, prepare=False)
                    (answer,) = await cursor.fetchmany(1)
            except psycopg.Error as error:
                raise faults.from_call(error, lost=connection.closed) from error
        return statements.decode(answer)

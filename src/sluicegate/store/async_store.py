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

    async def wake(self, arguments: Arguments) -> Answer:
        return await self._call(statements.WAKE, arguments)

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

    async def set_admission_policy(self, arguments: Arguments) -> Answer:
        return await self._call(statements.SET_ADMISSION_POLICY, arguments)

    async def patch_admission_policy(self, arguments: Arguments) -> Answer:
        return await self._call(statements.PATCH_ADMISSION_POLICY, arguments)

    async def clear_admission_policy(self, arguments: Arguments) -> Answer:
        return await self._call(statements.CLEAR_ADMISSION_POLICY, arguments)

    async def pause_queue(self, arguments: Arguments) -> Answer:
        return await self._call(statements.PAUSE_QUEUE, arguments)

    async def resume_queue(self, arguments: Arguments) -> Answer:
        return await self._call(statements.RESUME_QUEUE, arguments)

    async def reset_usage(self, arguments: Arguments) -> Answer:
        return await self._call(statements.RESET_USAGE, arguments)

    async def open_admission(self, arguments: Arguments) -> Answer:
        return await self._call(statements.OPEN_ADMISSION, arguments)

    async def demand(self, arguments: Arguments) -> Answer:
        return await self._call(statements.DEMAND, arguments)

    async def admission_status(self, arguments: Arguments) -> Answer:
        return await self._call(statements.ADMISSION_STATUS, arguments)

    async def budget_show(self, arguments: Arguments) -> Answer:
        return await self._call(statements.BUDGET_SHOW, arguments)

    async def budget_audit(self, arguments: Arguments) -> Answer:
        return await self._call(statements.BUDGET_AUDIT, arguments)

    async def rehearse(self, arguments: Arguments) -> Answer:
        return await self._call(statements.REHEARSE, arguments)

    async def explain(self, arguments: Arguments) -> Answer:
        return await self._call(statements.EXPLAIN, arguments)

    async def next_jobs(self, arguments: Arguments) -> Answer:
        return await self._call(statements.NEXT_JOBS, arguments)

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

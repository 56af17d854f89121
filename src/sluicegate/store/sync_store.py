# Generated from store/async_store.py by tools/unasync.py: change that file, then run it.
"""One method for each SQL function: its arguments by name as ``statements`` lists them, its answer as JSON gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import scalar_row

from sluicegate.store import faults, statements
from sluicegate.store.sync_connections import SyncConnections

Arguments = Mapping[str, Any]
Answer = Any


class SyncStore:
    """Calls the SQL functions on connections from ``connections``; every fault is raised as one of our errors."""

    def __init__(self, connections: SyncConnections) -> None:
        self._connections = connections

    def enqueue(self, arguments: Arguments) -> Answer:
        return self._call(statements.ENQUEUE, arguments)

    def enqueue_many(self, arguments: Arguments) -> Answer:
        return self._call(statements.ENQUEUE_MANY, arguments)

    def wake(self, arguments: Arguments) -> Answer:
        return self._call(statements.WAKE, arguments)

    def claim(self, arguments: Arguments) -> Answer:
        return self._call(statements.CLAIM, arguments)

    def claim_job(self, arguments: Arguments) -> Answer:
        return self._call(statements.CLAIM_JOB, arguments)

    def complete(self, arguments: Arguments) -> Answer:
        return self._call(statements.COMPLETE, arguments)

    def fail(self, arguments: Arguments) -> Answer:
        return self._call(statements.FAIL, arguments)

    def release(self, arguments: Arguments) -> Answer:
        return self._call(statements.RELEASE, arguments)

    def heartbeat(self, arguments: Arguments) -> Answer:
        return self._call(statements.HEARTBEAT, arguments)

    def heartbeat_many(self, arguments: Arguments) -> Answer:
        return self._call(statements.HEARTBEAT_MANY, arguments)

    def retry(self, arguments: Arguments) -> Answer:
        return self._call(statements.RETRY, arguments)

    def cancel(self, arguments: Arguments) -> Answer:
        return self._call(statements.CANCEL, arguments)

    def reap(self, arguments: Arguments) -> Answer:
        return self._call(statements.REAP, arguments)

    def prune(self, arguments: Arguments) -> Answer:
        return self._call(statements.PRUNE, arguments)

    def list_jobs(self, arguments: Arguments) -> Answer:
        return self._call(statements.LIST_JOBS, arguments)

    def get_job(self, arguments: Arguments) -> Answer:
        return self._call(statements.GET_JOB, arguments)

    def queue_stats(self, arguments: Arguments) -> Answer:
        return self._call(statements.QUEUE_STATS, arguments)

    def set_admission_policy(self, arguments: Arguments) -> Answer:
        return self._call(statements.SET_ADMISSION_POLICY, arguments)

    def patch_admission_policy(self, arguments: Arguments) -> Answer:
        return self._call(statements.PATCH_ADMISSION_POLICY, arguments)

    def clear_admission_policy(self, arguments: Arguments) -> Answer:
        return self._call(statements.CLEAR_ADMISSION_POLICY, arguments)

    def pause_queue(self, arguments: Arguments) -> Answer:
        return self._call(statements.PAUSE_QUEUE, arguments)

    def resume_queue(self, arguments: Arguments) -> Answer:
        return self._call(statements.RESUME_QUEUE, arguments)

    def reset_usage(self, arguments: Arguments) -> Answer:
        return self._call(statements.RESET_USAGE, arguments)

    def open_admission(self, arguments: Arguments) -> Answer:
        return self._call(statements.OPEN_ADMISSION, arguments)

    def demand(self, arguments: Arguments) -> Answer:
        return self._call(statements.DEMAND, arguments)

    def admission_status(self, arguments: Arguments) -> Answer:
        return self._call(statements.ADMISSION_STATUS, arguments)

    def budget_show(self, arguments: Arguments) -> Answer:
        return self._call(statements.BUDGET_SHOW, arguments)

    def budget_audit(self, arguments: Arguments) -> Answer:
        return self._call(statements.BUDGET_AUDIT, arguments)

    def rehearse(self, arguments: Arguments) -> Answer:
        return self._call(statements.REHEARSE, arguments)

    def explain(self, arguments: Arguments) -> Answer:
        return self._call(statements.EXPLAIN, arguments)

    def next_jobs(self, arguments: Arguments) -> Answer:
        return self._call(statements.NEXT_JOBS, arguments)

    def clock(self) -> Answer:
        return self._call(statements.CLOCK, {})

    def _call(self, statement: str, arguments: Arguments) -> Answer:
        with self._connections.connection() as connection:
            try:
                with connection.cursor(row_factory=scalar_row) as cursor:
                    cursor.execute(statement, arguments, prepare=False)
                    (answer,) = cursor.fetchmany(1)
            except psycopg.Error as error:
                raise faults.from_call(error, lost=connection.closed) from error
        return statements.decode(answer)

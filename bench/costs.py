"""What a job leaves behind: dead rows, and bytes of write-ahead log, over its whole life."""

import contextlib
import json
from dataclasses import dataclass

from bench.drivers import Clients, Psycopg
from bench.ours import QUEUE, claim, completed, empty_tables
from bench.work import RanDry

_JOBS = 2000
_DEAD = """
    select sum(pg_stat_get_dead_tuples(c.oid) + coalesce(pg_stat_get_dead_tuples(nullif(c.reltoastrelid, 0)), 0))::bigint
    from pg_class c
    where c.relnamespace = 'sluicegate'::regnamespace and c.relkind = 'r'
"""


@dataclass(frozen=True)
class Costs:
    """Per job that was enqueued, claimed and completed."""

    dead_rows: float
    wal_bytes: float


async def costs(clients: Clients, batch: int) -> Costs:
    """Measured with autovacuum off, over every table of the schema and its TOAST, from the server's own statistics."""
    (session,) = await clients.get("psycopg", 1)
    assert isinstance(session, Psycopg)
    await empty_tables(session, 0)
    dead_before = await _dead(session)
    wal_before = await session.value("select pg_current_wal_insert_lsn()")
    for _ in range(_JOBS // batch):
        jobs = json.dumps([{"queue": QUEUE, "payload": {"n": 1}}] * batch)
        await session.store.enqueue_many({"jobs": jobs, "request_id": None, "scope": "endpoint:default"})
    request = json.dumps([{"queues": [QUEUE], "n": batch}])
    finished = "[]"
    with contextlib.suppress(RanDry):
        while True:
            finished = json.dumps(completed(await claim(session, request, finished)))
    wal = await session.value("select pg_current_wal_insert_lsn() - $1::pg_lsn", wal_before)
    dead = await _dead(session) - dead_before
    done = await session.value("select count(*) from sluicegate.job where state = 'done'")
    assert done == _JOBS, f"{done} of {_JOBS} jobs are done"
    return Costs(dead / _JOBS, float(wal) / _JOBS)


async def _dead(session: Psycopg) -> int:
    # Statistics of this very session: sent at the end of this statement, read by the next.
    await session.run("select pg_stat_force_next_flush()")
    await session.run("select pg_stat_clear_snapshot()")
    return int(await session.value(_DEAD))

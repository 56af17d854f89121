"""A worker with nothing to do, and a clock that is moved."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluicegate import ClaimAnswers, Client
from sluicegate.testing import advance_clock
from sluicegate.worker import commands
from sluicegate.worker.exec import StopRequest, WorkerReport, run_exec
from sluicegate.worker.loop import Lookout
from tests.conftest import Connection
from tests.integration.worker.support import QUEUE
from tests.support.waiting import eventually_async

LISTENING = """
    select pid from pg_stat_activity
    where datname = current_database() and state = 'idle' and query like 'listen%'
"""


class Asking(Client):
    """Counts the claims that were answered."""

    answered = 0

    async def claim_many(self, *arguments: Any, **options: Any) -> ClaimAnswers:
        answer = await super().claim_many(*arguments, **options)
        self.answered += 1
        return answer


async def listening(db: Connection, *, without: Iterable[int] = ()) -> int:
    """The backend on which a worker listens, once there is one."""

    async def look() -> list[int]:
        found: list[int] = [pid for (pid,) in await (await db.execute(LISTENING)).fetchall()]
        return [pid for pid in found if pid not in without]

    return (await eventually_async(look, "a worker that listens"))[0]


async def idle(client: Asking, answers: int) -> None:
    """Return when so many claims, each of nothing, have been answered."""

    async def look() -> bool:
        return client.answered >= answers

    await eventually_async(look, f"{answers} claims of nothing")


async def done(client: Client, job_id: int) -> None:
    async def look() -> bool:
        return (await client.get_job(job_id)).job.state == "done"

    await eventually_async(look, "the job that has become due")


@pytest.fixture(autouse=True)
def rare_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_IDLE", (60.0, 60.0))
    # Nor a few more looks after news, so that they can be counted.
    monkeypatch.setattr(Lookout, "_WHILE", -1.0)


def started(client: Client, stop: StopRequest) -> "asyncio.Task[WorkerReport]":
    return asyncio.create_task(run_exec(client, QUEUE, ["true"], stop=stop))


async def test_moving_the_clock_wakes_an_idle_worker_at_once(dsn: str, client: Client, db: Connection) -> None:
    job = await client.enqueue(QUEUE, run_at=datetime.now(UTC) + timedelta(hours=3))
    stop = StopRequest()
    async with Asking(dsn) as asking:
        run = started(asking, stop)
        await listening(db)
        # One when it starts, one when it has begun to listen.
        await idle(asking, 2)
        await asyncio.to_thread(advance_clock, dsn, timedelta(hours=2))
        await idle(asking, 3)
        assert (await client.get_job(job.id)).job.state == "scheduled"
        await asyncio.to_thread(advance_clock, dsn, timedelta(hours=2))
        await done(client, job.id)
        stop.ask()
        assert (await run).done == 1


async def test_a_worker_listens_again_after_its_connection_was_lost(dsn: str, client: Client, db: Connection) -> None:
    job = await client.enqueue(QUEUE, run_at=datetime.now(UTC) + timedelta(hours=3))
    stop = StopRequest()
    async with Asking(dsn) as asking:
        run = started(asking, stop)
        first = await listening(db)
        await idle(asking, 2)
        await db.execute("select pg_terminate_backend(%s, 10000)", (first,))
        await listening(db, without=[first])
        await idle(asking, 3)
        await asyncio.to_thread(advance_clock, dsn, timedelta(hours=4))
        await done(client, job.id)
        stop.ask()
        assert (await run).done == 1
    assert await (await db.execute(LISTENING)).fetchall() == []

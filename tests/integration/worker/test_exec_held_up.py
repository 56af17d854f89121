"""Jobs that another transaction holds for a while: what is to be said of them is said again, nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from sluicegate import Claim, ClaimAnswers, Client, Finish, FinishItem, Heartbeat, Lease
from sluicegate.worker.exec import StopRequest, WorkerEvent, run_exec
from tests.conftest import Connect
from tests.integration.worker.support import QUEUE, sh
from tests.support.waiting import eventually_async


class Listening(Client):
    """Counts what was answered as unavailable."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.finishes = 0
        self.heartbeats = 0

    async def claim_many(self, *arguments: Any, **options: Any) -> ClaimAnswers:
        answer = await super().claim_many(*arguments, **options)
        self.finishes += sum(finish.status == "unavailable" for finish in answer.finished)
        return answer

    async def finish_many(self, items: Iterable[FinishItem], **options: Any) -> tuple[Finish, ...]:
        answers = await super().finish_many(items, **options)
        self.finishes += sum(finish.status == "unavailable" for finish in answers)
        return answers

    async def heartbeat_many(self, leases: Iterable[Claim | Lease], **options: Any) -> tuple[Heartbeat, ...]:
        answers = await super().heartbeat_many(leases, **options)
        self.heartbeats += sum(answer.status == "unavailable" for answer in answers)
        return answers


@pytest.fixture
async def listening(dsn: str) -> AsyncIterator[Listening]:
    async with Listening(dsn) as client:
        yield client


async def started(events: list[WorkerEvent]) -> None:
    async def look() -> bool:
        return any(event.kind == "started" for event in events)

    await eventually_async(look, "the command runs")


async def said_again(client: Listening, what: str) -> None:
    async def look() -> bool:
        return bool(getattr(client, what) >= 2)

    await eventually_async(look, f"two {what} that were held up")


@pytest.mark.parametrize("stopping", [False, True])
async def test_the_end_of_a_command_is_reported_again_until_the_job_is_free(
    listening: Listening, connect: Connect, tmp_path: Path, stopping: bool
) -> None:
    script = f"echo ran >> {tmp_path}/runs; until test -e {tmp_path}/go; do sleep 0.02; done"
    job = await listening.enqueue(QUEUE)
    other = await connect(autocommit=False)
    events: list[WorkerEvent] = []
    stop = StopRequest()
    run = asyncio.create_task(
        run_exec(listening, QUEUE, sh(script), stop=stop, drain=not stopping, on_event=events.append)
    )
    await started(events)
    await other.execute("select from sluicegate.job where id = %s for update", (job.id,))
    (tmp_path / "go").touch()
    if stopping:
        stop.ask()
    await said_again(listening, "finishes")
    await other.rollback()
    report = await run
    assert (report.claimed, report.done, report.lost) == (1, 1, 0)
    assert (tmp_path / "runs").read_text() == "ran\n"
    detail = await listening.get_job(job.id)
    assert (detail.job.state, detail.job.attempts_total) == ("done", 1)


@pytest.mark.parametrize("others", [0, 1])
async def test_a_heartbeat_that_was_held_up_is_sent_again_soon(
    listening: Listening, connect: Connect, tmp_path: Path, others: int
) -> None:
    """The lock outlasts one heartbeat, not the lease; the lease is kept and the command runs on."""
    held, *free = [(await listening.enqueue(QUEUE)).id for _ in range(1 + others)]
    other = await connect(autocommit=False)
    events: list[WorkerEvent] = []
    script = f"until test -e {tmp_path}/go; do sleep 0.02; done"
    run = asyncio.create_task(
        run_exec(listening, QUEUE, sh(script), concurrency=2, lease_seconds=9, drain=True, on_event=events.append)
    )
    await started(events)
    await other.execute("select from sluicegate.job where id = %s for update", (held,))
    before = (await listening.get_job(held)).job.lease_expires_at
    await said_again(listening, "heartbeats")
    await other.rollback()

    async def renewed() -> bool:
        after = (await listening.get_job(held)).job.lease_expires_at
        return before is not None and after is not None and after > before

    await eventually_async(renewed, "the lease is renewed", 3)
    (tmp_path / "go").touch()
    report = await run
    assert (report.done, report.lost) == (1 + others, 0)
    assert {(await listening.get_job(job_id)).job.attempts_total for job_id in (held, *free)} == {1}
    assert "database_away" not in {event.kind for event in events}

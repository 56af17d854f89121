"""Leases while a command runs: heartbeats, cancelling, losing."""

import asyncio
import signal
from collections.abc import Iterable
from typing import Any

import pytest

from sluicegate import Client
from sluicegate.model import Claim, Heartbeat, Lease
from sluicegate.worker.exec import StopRequest, WorkerEvent, WorkerReport, run_exec
from tests.conftest import Connection
from tests.integration.worker.support import QUEUE, Marked, StartWorker, sh
from tests.support.waiting import eventually_async

# A command whose group has several members, one of which does not listen to the polite signal.
FAMILY = "sleep 301 & (trap '' TERM; sleep 302; sleep 303) & sleep 304; true"


class CountingClient(Client):
    """Notes for how many leases each heartbeat asked."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.heartbeats: list[int] = []

    async def heartbeat_many(self, leases: Iterable[Claim | Lease], **options: Any) -> tuple[Heartbeat, ...]:
        asked = list(leases)
        self.heartbeats.append(len(asked))
        return await super().heartbeat_many(asked, **options)


async def started(client: Client, *, jobs: int = 1, command: list[str], **options: Any) -> "Running":
    """A run with so many commands under way."""
    running = Running()
    running.ids = [(await client.enqueue(QUEUE)).id for _ in range(jobs)]
    running.task = asyncio.create_task(
        run_exec(client, QUEUE, command, on_event=running.hear, stop=running.stop, concurrency=jobs, **options)
    )
    await running.wait("started", jobs)
    return running


class Running:
    def __init__(self) -> None:
        self.ids: list[int] = []
        self.events: list[WorkerEvent] = []
        self.stop = StopRequest()
        self.task: asyncio.Task[WorkerReport]

    def hear(self, event: WorkerEvent) -> None:
        self.events.append(event)

    async def wait(self, kind: str, number: int = 1) -> WorkerEvent:
        async def look() -> list[WorkerEvent]:
            if self.task.done():
                self.task.result()
            found = [event for event in self.events if event.kind == kind]
            return found if len(found) >= number else []

        return (await eventually_async(look, f"{number} events {kind}"))[-1]

    async def end(self) -> WorkerReport:
        self.stop.ask()
        return await self.task


async def lapse(db: Connection, job_id: int) -> None:
    """Let the lease of a job be over by the database's clock, whatever its holder thinks."""
    await db.execute(
        "update sluicegate.job set lease_expires_at = sluicegate.clock() - interval '1 second' where id = %s", (job_id,)
    )


async def test_heartbeats_keep_the_lease_for_longer_than_it_was_given(client: Client, db: Connection) -> None:
    running = await started(client, command=sh("sleep 5"), lease_seconds=2)
    await running.wait("done")
    detail = await client.get_job(running.ids[0])
    assert [attempt.outcome for attempt in detail.attempts] == ["completed"]
    ended = detail.attempts[0].ended_at
    assert ended is not None
    assert (ended - detail.attempts[0].opened_at).total_seconds() > 4.5
    assert (await running.end()).lost == 0


async def test_one_heartbeat_keeps_all_jobs_of_the_worker(dsn: str) -> None:
    async with CountingClient(dsn) as client:
        running = await started(client, jobs=5, command=sh("sleep 4"), lease_seconds=3)
        await running.wait("done", 5)
        await running.end()
        assert 2 <= len(client.heartbeats) <= 8
        assert max(client.heartbeats) == 5


async def test_a_cancelled_job_is_ended_with_its_whole_group(client: Client, marked: Marked) -> None:
    running = await started(client, command=sh(FAMILY), lease_seconds=3)
    await marked.running("sleep 30", 3)
    await client.cancel(running.ids[0], reason="no longer needed")
    event = await running.wait("cancelled")
    await marked.gone(running="sleep 30")
    assert event.message is not None
    assert event.message.startswith("The job was cancelled, so its command was ended")
    job = (await client.get_job(running.ids[0])).job
    assert (job.state, job.dead_letter) == ("cancelled", False)
    report = await running.end()
    assert (report.cancelled, report.failed, report.lost) == (1, 0, 0)


async def test_a_job_that_somebody_took_over_is_ended_and_not_reported(
    client: Client, dsn: str, db: Connection, marked: Marked
) -> None:
    running = await started(client, command=sh(FAMILY), lease_seconds=3)
    await marked.running("sleep 30", 3)
    async with Client(dsn, worker="other") as other:
        await lapse(db, running.ids[0])
        (claim,) = (await other.claim(QUEUE, lease_seconds=60)).claims
        event = await running.wait("lost")
        await marked.gone(running="sleep 30")
        assert event.claim is not None
        assert event.claim.job_id == running.ids[0]
        report = await running.end()
        assert (report.lost, report.failed, report.done, report.released) == (1, 0, 0, 0)
        finish = await other.complete(claim, "by the other")
        assert finish.state == "done"
    detail = await client.get_job(running.ids[0])
    assert [attempt.outcome for attempt in detail.attempts] == ["completed", "lease_expired"]
    assert detail.job.result == "by the other"


async def test_a_command_that_ends_by_itself_after_a_takeover_changes_nothing(
    client: Client, dsn: str, db: Connection
) -> None:
    """It ends before the next heartbeat would have told of the loss: the old token is refused, the loss is counted."""
    running = await started(client, command=sh("sleep 1.5"), lease_seconds=60)
    async with Client(dsn, worker="other") as other:
        await lapse(db, running.ids[0])
        await other.claim(QUEUE, lease_seconds=60)
        await running.wait("lost")
        assert (await client.get_job(running.ids[0])).job.worker == "other"
        assert (await running.end()).lost == 1


async def test_a_lapsed_lease_that_nobody_took_is_still_good_for_the_finish(client: Client, db: Connection) -> None:
    running = await started(client, command=sh("sleep 1"), lease_seconds=60)
    await lapse(db, running.ids[0])
    await running.wait("done")
    report = await running.end()
    assert (report.done, report.lost) == (1, 0)


async def test_a_worker_that_stands_still_loses_its_commands_at_the_end_of_the_lease(
    client: Client, start_worker: StartWorker, marked: Marked
) -> None:
    """The guardian needs nobody to tell it that the lease has run out."""
    job = await client.enqueue(QUEUE)
    worker = start_worker(sh(FAMILY), lease_seconds=3)
    await marked.running("sleep 30", 3)
    worker.signal(signal.SIGSTOP)
    await marked.gone(running="sleep 30")
    claim = await eventually_async(lambda: first_claim(client), "a takeover")
    assert claim is not None
    worker.signal(signal.SIGCONT)
    assert (await worker.wait_told("lost"))[0]["job_id"] == job.id
    worker.signal(signal.SIGTERM)
    assert (await worker.report())["lost"] == 1
    assert (await client.complete(claim)).state == "done"


async def first_claim(client: Client) -> Claim | None:
    return next(iter((await client.claim(QUEUE, lease_seconds=60)).claims), None)


async def test_commands_of_lost_jobs_make_room_for_others(client: Client, dsn: str, db: Connection) -> None:
    running = await started(client, command=sh("sleep 300"), lease_seconds=3)
    async with Client(dsn, worker="other") as other:
        await lapse(db, running.ids[0])
        await other.claim(QUEUE, lease_seconds=60)
        second = await client.enqueue(QUEUE)
        await running.wait("started", 2)
        assert running.events[-1].claim is not None
        assert running.events[-1].claim.job_id == second.id
    running.stop.ask()
    running.stop.insist()
    assert (await running.task).released == 1


@pytest.mark.parametrize("seconds", [1, 2])
async def test_the_shortest_leases_work(client: Client, seconds: int) -> None:
    running = await started(client, command=sh("sleep 2.5"), lease_seconds=seconds)
    await running.wait("done")
    assert (await running.end()).done == 1

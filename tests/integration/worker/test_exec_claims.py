"""Claiming: never more than free slots, in order, from several queues, until nothing is admissible."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sluicegate import Client, Forbidden, NotFound
from sluicegate.model import ClaimAnswers, ClaimRequest, FinishItem, NewJob
from sluicegate.worker.exec import StopRequest, WorkerEvent, run_exec
from tests.conftest import Connection
from tests.integration.worker.support import QUEUE, run_jobs, sh
from tests.support.servers import Server
from tests.support.waiting import eventually_async

# Each job writes when it began and ended, by one clock for all, to a file of its own.
RECORD = 'f="{folder}/$SLUICEGATE_JOB_ID"; date +%s.%N > "$f"; sleep 0.05; date +%s.%N >> "$f"'


class WatchedClient(Client):
    """Notes what was asked of each claim and what came."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.claims: list[tuple[int, int, int]] = []

    async def claim_many(
        self, asks: Sequence[ClaimRequest], *, finished: Iterable[FinishItem] = (), wait: bool = True
    ) -> ClaimAnswers:
        (ask,), finishes = asks, list(finished)
        answers = await super().claim_many(asks, finished=finishes, wait=wait)
        self.claims.append((ask.n, len(answers.responses[0].claims), len(finishes)))
        return answers


def records(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def overlap(folder: Path) -> int:
    """The most jobs that ran at one moment, by their own records."""
    moments: list[tuple[float, int]] = []
    for record in records(folder).values():
        began, ended = map(float, record.split())
        moments += [(began, 1), (ended, -1)]
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return most


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_commands_run_at_a_time_than_asked_for(client: Client, tmp_path: Path, concurrency: int) -> None:
    script = RECORD.replace("{folder}", str(tmp_path))
    outcome = await run_jobs(client, sh(script), [None] * 12, concurrency=concurrency)
    assert outcome.report.done == 12
    assert overlap(tmp_path) == concurrency


async def test_claims_never_ask_for_more_than_the_free_slots_and_carry_finishes(dsn: str) -> None:
    async with WatchedClient(dsn) as client:
        outcome = await run_jobs(client, ["true"], [None] * 30, concurrency=4)
        assert outcome.report.done == 30
        running = 0
        for asked, got, finished in client.claims:
            running -= finished
            assert got <= asked <= 4 - running
            running += got
        assert running == 0
        assert client.claims[0] == (4, 4, 0), "free slots are claimed together"
        assert sum(finished for _, _, finished in client.claims) == 30, "no finish needed a call of its own"


async def test_jobs_are_run_in_the_order_of_the_queue(client: Client) -> None:
    for priority in (5, 1, 3):
        await client.enqueue(QUEUE, priority, priority=priority)
    events: list[WorkerEvent] = []
    await run_exec(client, QUEUE, ["true"], drain=True, on_event=events.append)
    assert [event.claim.job.payload for event in events if event.kind == "done" and event.claim] == [1, 3, 5]


async def test_several_queues_are_served_by_one_run(client: Client) -> None:
    for queue in ("a", "b", "c"):
        await client.enqueue(queue)
    report = await run_exec(client, ["a", "b"], ["true"], drain=True)
    assert report.done == 2
    assert [row.queue for row in (await client.list_jobs(state="pending")).jobs] == ["c"]


async def test_drain_ends_at_once_on_an_empty_or_unknown_queue(client: Client) -> None:
    report = await run_exec(client, "never-seen", ["true"], drain=True)
    assert (report.claimed, report.done) == (0, 0)
    assert report.seconds < 20


async def test_drain_does_not_wait_for_jobs_of_later(client: Client) -> None:
    await client.enqueue(QUEUE, run_at=datetime.now(UTC) + timedelta(hours=1))
    await client.enqueue(QUEUE)
    report = await run_exec(client, QUEUE, ["true"], drain=True)
    assert report.done == 1


async def test_drain_waits_for_what_runs_and_takes_what_that_enqueues(client: Client, dsn: str) -> None:
    """A job that is enqueued while the last one runs is done as well."""
    await client.enqueue(QUEUE, "first")

    async def enqueue_second(event: WorkerEvent) -> None:
        await client.enqueue(QUEUE, "second")

    tasks: list[asyncio.Task[None]] = []

    def on_event(event: WorkerEvent) -> None:
        if event.kind == "started" and not tasks:
            tasks.append(asyncio.create_task(enqueue_second(event)))

    report = await run_exec(client, QUEUE, sh("sleep 0.5"), drain=True, on_event=on_event)
    assert report.done == 2


async def test_drain_takes_over_what_another_worker_let_lapse(client: Client, db: Connection) -> None:
    await client.enqueue(QUEUE)
    await client.claim(QUEUE)
    await db.execute("update sluicegate.job set lease_expires_at = sluicegate.clock() - interval '1 second'")
    report = await run_exec(client, QUEUE, ["true"], drain=True)
    assert report.done == 1


async def test_it_goes_on_until_told_to_stop_and_sees_new_jobs_soon(client: Client) -> None:
    stop = StopRequest()
    done: list[float] = []
    loop = asyncio.get_running_loop()

    def on_event(event: WorkerEvent) -> None:
        if event.kind == "done":
            done.append(loop.time())
            if len(done) == 2:
                stop.ask()
            else:
                tasks.append(asyncio.create_task(client.enqueue(QUEUE)))

    tasks: list[asyncio.Task[Any]] = []
    await client.enqueue(QUEUE)
    report = await run_exec(client, QUEUE, ["true"], on_event=on_event, stop=stop)
    assert report.done == 2
    assert done[1] - done[0] < 20


async def test_an_idle_worker_asks_about_once_a_second(dsn: str) -> None:
    async with WatchedClient(dsn) as client:
        stop = StopRequest()
        run = asyncio.create_task(run_exec(client, QUEUE, ["true"], stop=stop))
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def asked_eight_times() -> bool:
            return len(client.claims) >= 8

        await eventually_async(asked_eight_times, "eight claims")
        took = loop.time() - began
        stop.ask()
        await run
        assert took > 2, "50 ms doubling to a second"


async def test_many_small_jobs_are_each_run_once(client: Client, tmp_path: Path) -> None:
    jobs = [NewJob(QUEUE, number) for number in range(300)]
    await client.enqueue_many(jobs)
    report = await run_exec(
        client, QUEUE, ["sh", "-c", f'echo "$0" >> {tmp_path}/$0', "{payload}"], drain=True, concurrency=8
    )
    assert report.done == 300
    assert records(tmp_path) == {str(number): f"{number}\n" for number in range(300)}


async def test_an_unknown_scope_ends_the_run_with_its_error(dsn: str) -> None:
    async with Client(dsn, scope="endpoint:nobody") as client:
        with pytest.raises(NotFound):
            await run_exec(client, QUEUE, ["true"])


@pytest.fixture
async def reader_dsn(db: Connection, server: Server) -> AsyncIterator[str]:
    """The test's database, as a role that may read only."""
    role = f"reader_{uuid.uuid4().hex}"
    await db.execute(f"create role {role} login password 'x' in role sluicegate_reader")
    yield server.dsn(db.info.dbname, user=role, password="x")
    await db.execute(f"drop role {role}")


async def test_a_role_that_may_not_claim_ends_the_run_with_its_error(reader_dsn: str) -> None:
    async with Client(reader_dsn) as client:
        with pytest.raises(Forbidden):
            await run_exec(client, QUEUE, ["true"])


async def test_a_callback_that_raises_ends_the_run_after_its_jobs_and_is_raised(client: Client) -> None:
    job = await client.enqueue(QUEUE)

    def on_event(event: WorkerEvent) -> None:
        raise BrokenPipeError("nobody reads")

    with pytest.raises(BrokenPipeError):
        await run_exec(client, QUEUE, ["true"], on_event=on_event)
    assert (await client.get_job(job.id)).job.state == "done"


async def test_the_report_is_json(client: Client) -> None:
    outcome = await run_jobs(client, ["true"])
    assert json.loads(json.dumps(outcome.report.to_dict()))["done"] == 1

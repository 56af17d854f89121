"""Closed queues: what is over budget waits, is told once, and starts when its queue opens."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sluicegate import Client, NewJob
from sluicegate.testing import advance_clock, set_clock
from sluicegate.worker.exec import StopRequest, WorkerEvent, run_exec
from sluicegate.worker.loop import Lookout
from tests.integration.worker.support import QUEUE, sh
from tests.integration.worker.test_exec_claims import WatchedClient
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.usefixtures("midweek")

HOUR = {"limits": [{"max_claims_per_window": 2, "window": {"period": "hour", "tz": "UTC"}}]}
NOON = datetime(2026, 6, 1, 12, 0, 1, tzinfo=UTC)


async def test_drain_ends_when_all_that_is_left_is_deferred(client: Client) -> None:
    await client.set_policy(QUEUE, HOUR)
    await client.enqueue_many([NewJob(QUEUE) for _ in range(5)])
    events: list[WorkerEvent] = []
    report = await run_exec(client, QUEUE, ["true"], drain=True, concurrency=3, on_event=events.append)
    assert (report.claimed, report.done) == (2, 2)
    (told,) = [event.deferral for event in events if event.kind == "deferred"]
    assert told is not None
    assert (told.queue, told.reason, told.pending) == (QUEUE, "window_exhausted", 3)
    assert len((await client.list_jobs(queue=QUEUE, state="pending")).jobs) == 3


async def test_drain_runs_everything_under_a_cap_below_its_concurrency(client: Client) -> None:
    await client.set_policy(QUEUE, {"max_in_flight": 1})
    await client.enqueue_many([NewJob(QUEUE) for _ in range(4)])
    report = await run_exec(client, QUEUE, sh("sleep 0.05"), drain=True, concurrency=3)
    assert report.done == 4


async def test_a_closed_queue_is_not_polled_and_goes_on_at_its_boundary(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the few looks that follow when it begins to listen.
    monkeypatch.setattr(Lookout, "_WHILE", -1.0)
    set_clock(dsn, NOON)
    stop = StopRequest()
    done: list[int] = []

    def on_event(event: WorkerEvent) -> None:
        if event.kind == "done":
            done.append(1)

    async with WatchedClient(dsn) as client:
        await client.set_policy(QUEUE, HOUR)
        await client.enqueue_many([NewJob(QUEUE) for _ in range(4)])
        run = asyncio.create_task(run_exec(client, QUEUE, ["true"], on_event=on_event, stop=stop))

        async def closed() -> bool:
            return len(done) == 2 and client.claims[-1][1] == 0

        async def asked_again() -> bool:
            return len(client.claims) > asked

        async def over() -> bool:
            return len(done) == 4

        await eventually_async(closed, "a closed queue")
        asked = len(client.claims)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await eventually_async(asked_again, "another claim")
        await asyncio.to_thread(advance_clock, dsn, timedelta(hours=1))
        await eventually_async(over, "the next window")
        stop.ask("the test is over")
        assert (await run).done == 4

"""A worker that waits for a far window looks again at once when the policy is changed in its favour."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from sluicegate import Client, NewJob
from sluicegate.testing import freeze_clock
from sluicegate.worker import commands, parking
from sluicegate.worker.exec import StopRequest, run_exec
from tests.conftest import Connection
from tests.integration.worker.support import QUEUE
from tests.integration.worker.test_exec_clock import Asking, done, idle, listening

NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)
NEXT_MONTH = datetime(2026, 7, 10, tzinfo=UTC)
Change = Callable[[Client], Awaitable[object]]


def per_month(number: int) -> dict[str, Any]:
    return {"limits": [{"max_claims_per_window": number, "window": {"period": "month", "tz": "UTC"}}]}


@pytest.fixture(autouse=True)
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is not woken sleeps for longer than any test."""
    monkeypatch.setattr(commands, "_IDLE", (3600.0, 3600.0))
    monkeypatch.setattr(parking, "LONGEST", 3600.0)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda client: client.patch_policy(QUEUE, per_month(2)), id="raise"),
        pytest.param(lambda client: client.clear_policy(QUEUE), id="clear"),
        pytest.param(lambda client: client.reset_usage(QUEUE), id="reset"),
        pytest.param(
            lambda client: client.set_policy(QUEUE, {"max_in_flight": 5}), id="another limit instead of the window"
        ),
    ],
)
async def test_a_used_up_budget_that_is_opened_is_used_at_once(
    dsn: str, client: Client, db: Connection, change: Change
) -> None:
    freeze_clock(dsn, NOW)
    first, second = await client.enqueue_many([NewJob(QUEUE) for _ in range(2)])
    await client.set_policy(QUEUE, per_month(1))
    await client.complete(await client.claim_job(first.id))
    await parked_then(dsn, client, db, second.id, change)


@pytest.mark.parametrize("until", [None, NEXT_MONTH], ids=["until resumed", "until next month"])
async def test_a_queue_that_is_resumed_is_served_at_once(
    dsn: str, client: Client, db: Connection, until: datetime | None
) -> None:
    freeze_clock(dsn, NOW)
    job = await client.enqueue(QUEUE)
    await client.pause(QUEUE, until=until)
    await parked_then(dsn, client, db, job.id, lambda client: client.resume(QUEUE))


async def parked_then(dsn: str, client: Client, db: Connection, job_id: int, change: Change) -> None:
    """Let a worker wait for the closed queue, make the change, and see the job done."""
    stop = StopRequest()
    async with Asking(dsn) as asking:
        run = asyncio.create_task(run_exec(asking, QUEUE, ["true"], stop=stop))
        await listening(db)
        # One when it starts, one when it has begun to listen; then it waits.
        await idle(asking, 2)
        assert (await client.get_job(job_id)).job.state == "pending"
        await change(client)
        await done(client, job_id)
        stop.ask("the test is over")
        assert (await run).done == 1


async def test_a_queue_that_is_paused_or_lowered_leaves_those_that_wait_alone(
    dsn: str, client: Client, db: Connection
) -> None:
    freeze_clock(dsn, NOW)
    first, second = await client.enqueue_many([NewJob(QUEUE) for _ in range(2)])
    await client.set_policy(QUEUE, {**per_month(1), "max_in_flight": 3})
    await client.complete(await client.claim_job(first.id))
    stop = StopRequest()
    async with Asking(dsn) as asking:
        run = asyncio.create_task(run_exec(asking, QUEUE, ["true"], stop=stop))
        await listening(db)
        await idle(asking, 2)
        await client.patch_policy(QUEUE, {"max_in_flight": 1})
        await client.pause(QUEUE, until=NEXT_MONTH)
        # Notifications come in the order of their commits, so this one is the first that is heard.
        await client.clear_policy(QUEUE)
        await done(client, second.id)
        assert asking.answered <= 4, "one claim took the job, one carried its end"
        stop.ask("the test is over")
        await run

"""What a worker asks for when one call cannot hold it all."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from sluicegate import App, Client, Context, NewJob, Worker
from sluicegate.model import Claim, ClaimAnswer
from sluicegate.ops.requests import MAX_REQUESTS
from sluicegate.worker.capacity import QueueConfig, checked
from sluicegate.worker.sharing import SharedSlots
from sluicegate.worker.slots import Plan

BIG = "x" * ((1 << 20) - 2)


def answered(*claims: Claim) -> ClaimAnswer:
    return ClaimAnswer(claims, (), not claims, (), False, (), datetime.now(UTC))


async def planned(slots: SharedSlots) -> Plan:
    return await slots.plan({}, {})


async def test_of_more_queues_than_one_call_takes_those_that_were_left_out_come_first(client: Client) -> None:
    names = [f"q{number:03}" for number in range(MAX_REQUESTS + 30)]
    await client.enqueue_many([NewJob(name) for name in names])
    slots = SharedSlots(client, checked(dict.fromkeys(names, QueueConfig())), _never)
    rounds = []
    for _ in range(3):
        asks = (await planned(slots)).asks
        assert len(asks) == MAX_REQUESTS
        rounds.append([ask.queues[0] for ask in asks])
        # As if others had been quicker each time.
        slots.heard(asks, [answered() for _ in asks], idle=True)
    assert rounds[0] == names[:MAX_REQUESTS]
    assert rounds[1] == names[MAX_REQUESTS:] + names[: MAX_REQUESTS - 30]
    assert rounds[2][:30] == names[MAX_REQUESTS - 30 : MAX_REQUESTS]


async def test_what_one_answer_cannot_hold_is_asked_for_again_and_comes_first(client: Client) -> None:
    """The big jobs fill the answer, so the others are busy; the big ones do not end before those have run."""
    app = App({"a": {"max_workers": 30}, "b": {}, "c": {}})
    small_ones = {"b", "c"}
    door = asyncio.Event()

    @app.handler(queue="a", kind="")
    async def big(payload: str) -> None:
        await door.wait()

    async def small(context: Context) -> None:
        small_ones.discard(context.job.queue)
        if not small_ones:
            door.set()

    for queue in ("b", "c"):
        app.handler(queue=queue, kind="")(small)
    for _ in range(20):
        await client.enqueue("a", BIG)
    await client.enqueue_many([NewJob("b"), NewJob("c")])
    report = await Worker(client, app, drain=True).run()
    assert (report.claimed, report.done) == (22, 22)


def _never(*_: object) -> None:
    raise AssertionError("nothing was claimed")

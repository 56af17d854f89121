"""A pool shared by the queues of one worker: who gets the slots, judged by the handlers that run."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from sluicegate import App, Client, Context, RetryAfter, Worker
from sluicegate.worker.capacity import QueueConfig
from tests.conftest import Connect, Connection
from tests.integration.worker.doors import Doors, backlog, truth
from tests.support.counts import rounds
from tests.support.waiting import eventually_async


async def play(doors: Doors, slots: int, claims: int) -> None:
    """Let one out at a time, and wait until its slot is taken again, until so many have started."""
    await doors.full(slots)
    while doors.started.total() < claims:
        before = doors.started.total()
        doors.let_out()
        await eventually_async(partial(doors.more, before), "the slot is taken again")
    assert doors.most == slots


@pytest.mark.parametrize("idle", [0, 30])
async def test_idle_queues_take_nothing_from_a_busy_one(client: Client, work: Any, idle: int) -> None:
    doors = Doors({"busy": {}, **{f"idle-{number}": {"weight": 100} for number in range(idle)}}, 20)
    await backlog(client, busy=60)
    worker = await work(doors)
    await doors.full(20)
    for _ in range(10):
        doors.let_out(3)
        await doors.full(20)
    (busy, *others) = worker.health().queues
    assert (busy.running, round(busy.share)) == (20, 20)
    assert {(one.running, one.share) for one in others} <= {(0, 0.0)}


async def test_what_a_heavy_queue_cannot_use_goes_to_the_others(client: Client, work: Any) -> None:
    doors = Doors({"heavy": {"weight": 9}, "light": {}}, 20)
    await backlog(client, heavy=1, light=60)
    await work(doors)
    await doors.full(20)
    assert (doors.running("heavy"), doors.running("light")) == (1, 19)
    for _ in range(5):
        doors.let_out(4, "light")
        await doors.full(20)


async def test_a_queue_without_tokens_gives_its_share_away(client: Client, work: Any) -> None:
    doors = Doors({"heavy": {"weight": 9, "rate_per_second": 0.001}, "light": {}}, 20)
    await backlog(client, heavy=30, light=60)
    await work(doors)
    await doors.full(20)
    assert (doors.running("heavy"), doors.running("light")) == (1, 19)


async def test_a_queue_that_its_budget_has_closed_gives_its_share_away(client: Client, work: Any) -> None:
    doors = Doors({"heavy": {"weight": 9}, "light": {}}, 10)
    await client.set_policy(
        "heavy", {"limits": [{"max_claims_per_window": 2, "window": {"period": "month", "tz": "UTC"}}]}
    )
    await backlog(client, heavy=30, light=60)
    worker = await work(doors)
    await doors.full(10)
    doors.let_out(10)
    await eventually_async(lambda: truth(doors.running("light") == 10), "all slots are the light queue's")
    assert doors.started["heavy"] == 2
    await eventually_async(lambda: truth(worker.health().queues[0].waits_for == "window_exhausted"), "it says why")
    assert worker.health().queues[0].share == 0


@pytest.mark.parametrize("slots", [1, 4])
async def test_three_to_one_is_three_to_one_with_slots_freed_one_at_a_time(
    client: Client, work: Any, slots: int
) -> None:
    claims = rounds(400, 2000)
    doors = Doors({"a": {"weight": 3}, "b": {"weight": 1}}, slots)
    await backlog(client, a=claims, b=claims)
    await work(doors)
    await play(doors, slots, claims)
    assert doors.started["a"] / doors.started.total() == pytest.approx(0.75, abs=0.03)


async def test_one_slot_is_taken_in_turn_also_by_who_comes_late(client: Client, work: Any) -> None:
    doors = Doors({"a": {}, "b": {}}, 1)
    await backlog(client, a=500)
    await work(doors)
    await play(doors, 1, 20)
    await backlog(client, b=300)
    before = doors.started["a"]
    await play(doors, 1, 420)
    turns = [later - earlier for earlier, later in pairwise(doors.starts[20:])]
    # Time is what is shared: after a turn that took long on a busy machine the other queue has a few more.
    slack = 2 * max(turns) / (sum(turns) / len(turns))
    assert doors.started["b"] == pytest.approx(doors.started["a"] - before, rel=0.1, abs=max(3, slack))


async def test_a_floor_is_lent_and_given_back_first(client: Client, work: Any) -> None:
    doors = Doors({"a": {}, "b": {"min_workers": 10}}, 20)
    await backlog(client, a=100)
    await work(doors)
    await doors.full(20)
    assert doors.running("a") == 20
    await backlog(client, b=40)
    for _ in range(10):
        doors.let_out(1, "a")
        await doors.full(20)
    assert doors.running("b") >= 9, "what became free was its own"


async def test_a_floor_that_is_not_lent_is_kept_free(client: Client, work: Any) -> None:
    doors = Doors({"a": {}, "b": {"min_workers": 4, "lend_floor": False}}, 10)
    await backlog(client, a=100)
    await work(doors)
    await doors.full(6)
    await backlog(client, b=4)
    await doors.full(10)
    assert doors.running("b") == 4


async def test_a_cap_is_never_passed_and_a_floor_is_had_when_it_is_wanted(client: Client, work: Any) -> None:
    doors = Doors({"a": {"min_workers": 2, "weight": 3, "max_workers": 8}, "b": {}}, 12)
    await backlog(client, a=100, b=5)
    await work(doors)
    await doors.full(12)
    assert doors.running("a") == 8
    for _ in range(8):
        doors.let_out(3)
        await eventually_async(lambda: truth(doors.running("a") >= 2), "its floor")
        assert doors.running("a") <= 8


async def test_without_a_pool_each_queue_has_its_own_slots(client: Client, work: Any) -> None:
    doors = Doors({"a": {"max_workers": 3}, "b": {"max_workers": 2}}, None)
    await backlog(client, a=9, b=9)
    worker = await work(doors)
    await doors.full(5)
    assert (doors.running("a"), doors.running("b")) == (3, 2)
    assert [one.to_dict()["capacity"] for one in worker.health().queues] == [
        {"mode": "hard_reserved", "max_workers": 3},
        {"mode": "hard_reserved", "max_workers": 2},
    ]
    assert QueueConfig().max_workers is None


async def test_a_slot_that_is_free_goes_at_once_to_whoever_deserves_it(client: Client, work: Any) -> None:
    """With a poll of an hour: what is freed is given away because it is freed."""
    doors = Doors({"a": {}, "b": {}}, 2)
    await backlog(client, a=2, b=2)
    await work(doors, poll=3600.0)
    await doors.full(2)
    for _ in range(2):
        doors.let_out(1)
        await doors.full(2)
    assert doors.started == {"a": 2, "b": 2}


async def test_a_draining_worker_waits_for_tokens_while_jobs_are_left_and_no_longer(client: Client) -> None:
    """One that waited for the next token of the slow queue would not end for a quarter of an hour."""
    app = App({"quick": {"rate_per_second": 50}, "slow": {"rate_per_second": 0.001}, "free": {}}, global_max_workers=4)
    for queue in ("quick", "slow", "free"):
        app.handler(queue=queue, kind="")(_nothing)
    await backlog(client, quick=5, slow=1, free=3)
    report = await Worker(client, app, drain=True).run()
    assert (report.done, report.claimed) == (9, 9)
    alone = App({"slow": {"rate_per_second": 0.001}})
    alone.handler(queue="slow", kind="")(_nothing)
    await backlog(client, slow=1)
    assert (await Worker(client, alone, drain=True).run()).done == 1


async def _nothing(payload: Any) -> None: ...


async def test_a_draining_worker_does_not_end_before_every_end_is_recorded(client: Client, connect: Any) -> None:
    """The finish that gives a job back is held up by another transaction; then there is more to do."""
    other = await connect(autocommit=False)
    tries: list[int] = []
    app = App()

    @app.handler(queue="q", kind="")
    async def do(context: Context) -> None:
        tries.append(context.attempt)
        if len(tries) == 1:
            await other.execute("select from sluicegate.job where id = %s for update", [context.job.id])
            raise RetryAfter(0)

    await client.enqueue("q")
    worker = Worker(client, app, drain=True)
    await worker.start()
    assert worker._run is not None
    dispatcher = worker._run.dispatcher
    await eventually_async(lambda: truth(bool(dispatcher._held_up)), "its end is held up")
    await other.rollback()
    assert (await worker.finished()).done == 1
    assert tries == [1, 2]


async def test_no_more_is_claimed_than_there_are_permits(client: Client, work: Any, connect: Any) -> None:
    doors = Doors({"a": {}, "b": {"weight": 2}}, 4)
    await backlog(client, a=40, b=40)
    db = await connect()
    worst = 0

    async def watch() -> None:
        nonlocal worst
        while True:
            row = await (await db.execute("select count(*) from sluicegate.job where state = 'claimed'")).fetchone()
            worst = max(worst, row[0])

    watching = asyncio.create_task(watch())
    await work(doors)
    await play(doors, 4, 60)
    watching.cancel()
    # A job whose finish travels with the next claim is done, and still claimed.
    assert worst <= 4


async def test_a_job_whose_end_cannot_be_recorded_yet_keeps_its_slot(
    client: Client, connect: Connect, db: Connection, work: Any
) -> None:
    """To the database it still runs: with another claim beside it there would be more of them than slots."""
    doors = Doors({"a": {"max_workers": 2}}, None)
    await backlog(client, a=6)
    await work(doors)
    await doors.full(2)
    other = await connect(autocommit=False)
    await other.execute("select from sluicegate.job where state = 'claimed' order by id limit 1 for update")
    doors.let_out(2)
    # The claim that carried both ends could not know that one of them would not be recorded.
    await eventually_async(lambda: truth(doors.started["a"] == 4), "two more run")
    doors.let_out()
    await eventually_async(partial(_claimed, db, 2), "one ended, and nothing was claimed for it")
    assert (doors.started["a"], doors.running()) == (4, 1)
    await other.rollback()
    await eventually_async(lambda: truth(doors.started["a"] == 5), "the slot is free")
    assert await _claimed(db, 2)


async def _claimed(db: Connection, number: int) -> bool:
    found = await (await db.execute("select count(*) from sluicegate.job where state = 'claimed'")).fetchone()
    return found == (number,)

"""What a worker asks for when one call cannot hold it all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NoReturn

import pytest

from sluicegate import App, Client, Context, NewJob, Worker
from sluicegate.model import Claim, ClaimAnswer, ClaimRequest
from sluicegate.ops.requests import MAX_REQUESTS
from sluicegate.worker import rests
from sluicegate.worker.capacity import QueueConfig, checked
from sluicegate.worker.commands import CommandSlots
from sluicegate.worker.crew import Crew
from sluicegate.worker.parking import LONGEST
from sluicegate.worker.run import Run
from sluicegate.worker.sharing import SharedSlots
from sluicegate.worker.slots import Plan, Slots
from sluicegate.worker.stopping import StopRequest
from sluicegate.worker.terms import Terms
from tests.conftest import Connect, Connection
from tests.integration.worker.doors import truth
from tests.support.waiting import eventually_async

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


@pytest.mark.parametrize("hears", [True, False])
async def test_a_closed_queue_is_left_alone_for_longer_than_the_poll_only_while_there_is_news_of_it(
    client: Client, hears: bool
) -> None:
    await client.enqueue("q")
    await client.pause("q")
    slots = SharedSlots(client, checked({"q": QueueConfig()}), _never, poll=0.2, hears=lambda: hears)
    wait = (await planned(slots)).wait
    assert wait is not None
    assert (wait >= LONGEST) if hears else (wait <= 0.2)


@pytest.mark.parametrize("hears", [True, False])
async def test_exec_leaves_a_closed_queue_alone_for_longer_only_while_there_is_news_of_it(
    client: Client, hears: bool
) -> None:
    await client.enqueue("q")
    await client.pause("q")
    slots = command_slots(client, ("q",), hears=hears)
    asks, answers = await answers_to(client, slots)
    wait = slots.heard(asks, answers, idle=True)
    assert wait is not None
    assert (wait >= LONGEST) if hears else (wait <= 1.0)


async def test_a_worker_knows_whether_it_hears_of_news(client: Client, db: Connection) -> None:
    app = App()

    @app.handler(queue="q", kind="")
    async def do(payload: object) -> None: ...

    worker = Worker(client, app)
    async with worker:
        run = worker._run
        assert run is not None
        await eventually_async(lambda: truth(run.hears()), "it listens")
        await db.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen%' and datname = current_database()"
        )
        await eventually_async(lambda: truth(not run.hears()), "it noticed that it does not")
        await eventually_async(lambda: truth(run.hears()), "it listens again")


@pytest.fixture
def long_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rest ends by itself while a test looks."""
    monkeypatch.setattr(rests, "_HELD_FIRST", 3600.0)


async def under_change(connect: Connect) -> Connection:
    """A connection that has the policy of q open for a change."""
    editor = await connect(autocommit=False)
    await editor.execute("select sluicegate.patch_admission_policy('q', '{\"max_in_flight\": 8}')")
    return editor


async def answers_to(client: Client, slots: Slots) -> tuple[Sequence[ClaimRequest], Sequence[ClaimAnswer]]:
    asks = (await slots.plan({}, {})).asks
    return asks, (await client.claim_many(asks, wait=False)).responses


@pytest.mark.usefixtures("long_rests")
async def test_a_queue_that_was_held_is_left_out_until_a_change_is_told(client: Client, connect: Connect) -> None:
    await client.set_policy("q", {"max_in_flight": 9})
    await client.enqueue_many([NewJob(queue) for queue in ("q", "q", "p", "p")])
    slots = SharedSlots(client, checked({"q": QueueConfig(), "p": QueueConfig()}, 10), _never)
    editor = await under_change(connect)
    asks, answers = await answers_to(client, slots)
    assert {ask.queues: (len(answer.claims), answer.held) for ask, answer in zip(asks, answers, strict=True)} == {
        ("q",): (0, ("q",)),
        ("p",): (2, ()),
    }
    slots.heard(asks, answers, idle=False)
    await client.enqueue("p")
    for news in (False, True):
        if news:
            slots.look()
        again = (await planned(slots)).asks
        assert [ask.queues for ask in again] == [("p",)]
        slots.dropped(again)
    await editor.commit()
    slots.look(opened=True)
    assert {ask.queues for ask in (await planned(slots)).asks} == {("p",), ("q",)}


@pytest.mark.usefixtures("long_rests")
async def test_exec_leaves_a_queue_that_was_held_out_until_a_change_is_told(client: Client, connect: Connect) -> None:
    await client.set_policy("q", {"max_in_flight": 9})
    await client.enqueue("q")
    slots = command_slots(client, ("q", "p"), drain=True)
    editor = await under_change(connect)
    asks, answers = await answers_to(client, slots)
    assert [answer.held for answer in answers] == [("q",)]
    assert slots.heard(asks, answers, idle=True) is not None, "it is not drained"
    asks, answers = await answers_to(client, slots)
    assert [ask.queues for ask in asks] == [("p",)]
    assert slots.heard(asks, answers, idle=True) is not None, "nor when the others are empty"
    slots.look()
    assert [ask.queues for ask in (await slots.plan({}, {})).asks] == [("p",)]
    await editor.commit()
    slots.look(opened=True)
    asks, answers = await answers_to(client, slots)
    assert [(ask.queues, len(answer.claims)) for ask, answer in zip(asks, answers, strict=True)] == [(("q", "p"), 1)]


def command_slots(client: Client, queues: tuple[str, ...], *, drain: bool = False, hears: bool = True) -> CommandSlots:
    """What ``exec`` asks with, of a run that has not begun."""
    terms = Terms.checked(
        queues, concurrency=1, lease_seconds=None, timeout=None, drain=drain, grace=0, release_delay=1
    )
    run = Run(client, lease_seconds=None, grace=0, on_event=None, stop=StopRequest())
    made: list[CommandSlots] = []

    def slots(crew: Crew) -> CommandSlots:
        made.append(CommandSlots(crew, terms, run.tally, lambda: hears))
        return made[0]

    run.staff(_never, slots, queues)
    return made[0]


async def test_what_a_plan_took_comes_back_when_it_is_dropped(client: Client) -> None:
    await client.enqueue_many([NewJob("q") for _ in range(3)])
    slots = SharedSlots(client, checked({"q": QueueConfig(rate_per_second=0.001, burst=2)}), _never)
    for _ in range(2):
        asks = (await planned(slots)).asks
        assert [ask.n for ask in asks] == [2]
        assert slots._tokens("q") == 0
        slots.dropped(asks)
        assert (slots._tokens("q"), slots._permits.total, slots.running) == (2, 0, 0)


def _never(*_: object) -> NoReturn:
    raise AssertionError("nothing was claimed")

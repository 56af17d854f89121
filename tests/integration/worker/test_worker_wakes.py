"""A worker whose next look is a minute away is woken by whatever gives it something to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluicegate import App, Client, NewJob, SyncClient, Worker
from sluicegate.model import Demand
from sluicegate.testing import advance_clock, freeze_clock
from sluicegate.worker import commands, sharing
from sluicegate.worker.exec import StopRequest, run_exec
from sluicegate.worker.watch import Watch, _mark
from tests.conftest import Connect, Connection
from tests.support.waiting import eventually_async

NOW = datetime(2026, 6, 10, 12, 10, tzinfo=UTC)
POLL = 60.0


class Sleeper:
    """A worker of ``q`` with a poll interval of a minute that has looked, found nothing and sleeps."""

    def __init__(self, client: Client, slots: int = 2) -> None:
        self.done: list[int] = []
        self.inside = 0
        self.door = asyncio.Event()
        self.door.set()
        self.looks = 0
        beside = client.beside

        def counted(*, max_size: int) -> Client:
            own = beside(max_size=max_size)
            demand = own.demand

            def count(*queues: str, most: int) -> Coroutine[Any, Any, Demand]:
                self.looks += 1
                return demand(*queues, most=most)

            own.demand = count  # type: ignore[method-assign]
            return own

        client.beside = counted  # type: ignore[method-assign]
        app = App({"q": {"max_workers": slots}})

        @app.handler(queue="q", kind="")
        async def do(payload: Any) -> None:
            self.inside += 1
            await self.door.wait()
            self.done.append(payload)

        self.worker = Worker(client, app, poll=POLL, grace=0)

    async def asleep(self) -> None:
        """Return when nothing will make it look for a long time: it listens, and no look has come for a while."""
        await eventually_async(lambda: _true(self.pause() > 10), "it sleeps", timeout=60)

    def pause(self) -> float:
        run = self.worker._run
        return 0.0 if run is None else run.dispatcher.loop.pause

    async def has_done(self, number: int) -> int:
        """How many it has done, that many within less time than its own next look would need."""
        await eventually_async(lambda: _true(len(self.done) >= number), f"{number} done", timeout=15)
        return len(self.done)


async def _true(value: bool) -> bool:
    return value


@pytest.fixture(autouse=True)
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first look on, so that nothing but news can make it look again in time."""
    monkeypatch.setattr(sharing, "_IDLE", POLL)
    monkeypatch.setattr(commands, "_IDLE", (POLL, POLL))


@pytest.fixture
async def sleeper(client: Client) -> AsyncIterator[Sleeper]:
    one = Sleeper(client)
    await one.worker.start()
    yield one
    one.door.set()
    await one.worker.stop()


async def test_a_new_job_wakes(sleeper: Sleeper, client: Client, dsn: str, connect: Connect) -> None:
    with SyncClient(dsn) as sync:
        ways: list[Callable[[], Awaitable[object]]] = [
            lambda: client.enqueue("q", 1),
            lambda: client.enqueue_many([NewJob("q", 2)]),
            lambda: asyncio.to_thread(sync.enqueue, "q", 3),
            lambda: _sql(connect, "select sluicegate.enqueue('q', '4')"),
            lambda: _in_a_transaction(connect, "select sluicegate.enqueue('q', '5')"),
        ]
        for number, add in enumerate(ways, 1):
            await sleeper.asleep()
            await add()
            assert await sleeper.has_done(number) == number


async def _sql(connect: Connect, query: str) -> None:
    await (await connect()).execute(query)


async def _in_a_transaction(connect: Connect, query: str) -> None:
    connection = await connect(autocommit=False)
    async with connection.transaction():
        await connection.execute(query)


async def test_what_a_client_does_not_tell_of_is_seen_all_the_same(sleeper: Sleeper, client: Client) -> None:
    """Faster than a client tells: every job is done long before the worker's own next look."""
    await sleeper.asleep()
    sleeper.door.clear()
    await asyncio.gather(*(client.enqueue("q", number) for number in range(200)))
    sleeper.door.set()
    assert await sleeper.has_done(200) == 200


async def test_a_retried_and_a_released_job_wake(sleeper: Sleeper, client: Client, dsn: str) -> None:
    job = await client.enqueue("q", 1, run_at=datetime.now(UTC) + timedelta(days=1))
    await sleeper.asleep()
    await client.retry(job.id)
    assert await sleeper.has_done(1) == 1
    async with Client(dsn) as other:
        sleeper.door.clear()
        await client.enqueue_many([NewJob("q", number) for number in (2, 3, 4)])
        await eventually_async(lambda: _true(sleeper.inside == 3), "its two slots are taken")
        (claim,) = (await other.claim("q")).claims
        sleeper.door.set()
        assert await sleeper.has_done(3) == 3
        await sleeper.asleep()
        await other.release(claim)
        assert await sleeper.has_done(4) == 4
    assert sleeper.done[-1] == claim.job.payload


async def test_a_job_that_is_due_is_not_slept_over(sleeper: Sleeper, client: Client, db: Connection) -> None:
    await sleeper.asleep()
    await client.enqueue("q", 1, run_at=(await client.server_time()) + timedelta(seconds=1.5))
    assert await sleeper.has_done(1) == 1


OPENINGS: dict[str, tuple[dict[str, Any], Callable[[Client, Connection], Awaitable[Any]]]] = {
    "resumed": ({"paused": True}, lambda client, _: client.resume("q")),
    "raised": (
        {"limits": [{"max_claims_per_window": 0, "window": {"period": "day", "tz": "UTC"}}]},
        lambda client, _: client.patch_policy(
            "q", {"limits": [{"max_claims_per_window": 9, "window": {"period": "day", "tz": "UTC"}}]}
        ),
    ),
    "its pause is over": (
        {"paused": True, "paused_until": (NOW + timedelta(hours=1)).isoformat()},
        lambda _, db: advance_clock(db, timedelta(hours=1)),
    ),
}


@pytest.mark.parametrize("first", ["job", "policy"])
@pytest.mark.parametrize("opening", OPENINGS)
async def test_a_queue_that_opens_wakes(client: Client, db: Connection, opening: str, first: str) -> None:
    """Whether the job was there before the worker slept or was added while it did, which told nobody."""
    policy, open_it = OPENINGS[opening]
    await freeze_clock(db, NOW)
    if first == "job":
        await client.enqueue("q", 1)
    await client.set_policy("q", policy)
    sleeper = Sleeper(client)
    async with sleeper.worker:
        await sleeper.asleep()
        if first == "policy":
            await client.enqueue("q", 1)
        await sleeper.asleep()
        assert sleeper.done == []
        await open_it(client, db)
        assert await sleeper.has_done(1) == 1


async def test_the_time_a_queue_opens_is_not_slept_over(client: Client, db: Connection) -> None:
    """The clock runs: the pause ends while the worker sleeps, and the job came after it fell asleep."""
    await client.pause("q", until=(await client.server_time()) + timedelta(seconds=3))
    sleeper = Sleeper(client)
    async with sleeper.worker:
        await eventually_async(lambda: _true(sleeper.pause() > 0.5), "it sleeps until the pause is over")
        await client.enqueue("q", 1)
        assert await sleeper.has_done(1) == 1


async def test_a_slot_that_another_process_frees_wakes(client: Client) -> None:
    await client.set_policy("q", {"max_in_flight": 1})
    await client.enqueue_many([NewJob("q", number) for number in range(2)])
    (held,) = (await client.claim("q")).claims
    sleeper = Sleeper(client)
    async with sleeper.worker:
        await sleeper.asleep()
        assert sleeper.done == []
        await client.complete(held)
        assert await sleeper.has_done(1) == 1


async def test_a_claim_that_lapsed_and_is_reaped_wakes(client: Client, db: Connection) -> None:
    """It was the job's last attempt, and has left room for another; nobody is told of the moment when it lapsed."""
    await client.set_policy("q", {"max_in_flight": 1})
    await client.enqueue_many([NewJob("q", 0, max_attempts=1), NewJob("q", 1)])
    (held,) = (await client.claim("q")).claims
    sleeper = Sleeper(client)
    async with sleeper.worker:
        await sleeper.asleep()
        await db.execute("update sluicegate.job set lease_expires_at = sluicegate.clock() where id = %s", [held.job_id])
        assert (await client.reap()).dead_lettered == 1
        assert await sleeper.has_done(1) == 1
    assert [attempt.outcome for attempt in (await client.get_job(held.job_id)).attempts] == ["reaped"]
    assert sleeper.done == [1]


async def test_after_its_listener_was_lost_it_listens_again_and_looks(
    sleeper: Sleeper, client: Client, db: Connection
) -> None:
    await sleeper.asleep()
    listeners = "select pid from pg_stat_activity where datname = current_database() and query like 'listen%'"
    found = await (await db.execute(listeners)).fetchall()
    assert len(found) == 1
    await db.execute("select pg_terminate_backend(%s)", (found[0][0],))
    await client.enqueue("q", 1)
    assert await sleeper.has_done(1) == 1
    await eventually_async(lambda: _listens_again(db, listeners, found[0][0]), "it listens again")
    await sleeper.asleep()
    await client.enqueue("q", 2)
    assert await sleeper.has_done(2) == 2


async def _listens_again(db: Connection, query: str, before: int) -> bool:
    return [row[0] for row in await (await db.execute(query)).fetchall()] not in ([], [before])


async def test_its_listener_is_never_in_a_transaction(sleeper: Sleeper, db: Connection) -> None:
    await sleeper.asleep()
    query = """
        select state, xact_start from pg_stat_activity
        where datname = current_database() and query like 'listen%'
    """
    assert await (await db.execute(query)).fetchall() == [("idle", None)]


async def test_only_what_concerns_its_queues_wakes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = Sleeper(client)
    looks = 0
    heard: list[tuple[str, int]] = []
    hear = Watch._heard

    def noted(watch: Watch, channel: str, payload: str) -> None:
        before = looks
        hear(watch, channel, payload)
        heard.append((payload, looks - before))

    monkeypatch.setattr(Watch, "_heard", noted)
    async with sleeper.worker:
        await sleeper.asleep()
        slots = sleeper.worker._slots
        assert slots is not None
        look = slots.look

        def counted(**options: bool) -> None:
            nonlocal looks
            looks += 1
            look(**options)

        monkeypatch.setattr(slots, "look", counted)
        demands = sleeper.looks
        for _ in range(20):
            await client.enqueue("another", 1)
        await client.enqueue("q", 1)
        assert await sleeper.has_done(1) == 1
        # After the news: at once, and with the finish, and for 150 ms every 45.
        assert 1 <= sleeper.looks - demands < 15
    assert {number for payload, number in heard if payload == _mark("another")} == {0}
    assert {number for payload, number in heard if payload == _mark("q")} == {1}


async def test_exec_is_woken_too(client: Client) -> None:
    stop = StopRequest()
    told: list[str] = []
    running = asyncio.create_task(
        run_exec(client, "q", ["true"], on_event=lambda event: told.append(event.kind), stop=stop)
    )
    await eventually_async(lambda: _true("waiting" in told), "it waits")
    await client.pause("q")
    await client.enqueue("q", 1)
    await client.resume("q")
    await eventually_async(lambda: _true("done" in told), "it has run the job")
    stop.ask()
    report = await running
    assert report.done == 1

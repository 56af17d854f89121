"""A worker whose database goes away in every way it can: it says so, comes back by itself, loses nothing, does nothing twice."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import psycopg
import pytest

from sluicegate import Client, Context, NewJob, SchemaMismatch
from sluicegate.sql.migrate import migrate
from sluicegate.worker.loop import Lookout, Pace
from sluicegate.worker.probe import http_probe
from sluicegate.worker.slots import Plan
from tests.conftest import Connection
from tests.faults.fleet import a_random_moment, count
from tests.faults.watched import QUEUE, Diary, Watched, app_of, probed, turns, until
from tests.support.counts import rounds
from tests.support.holder import Holder
from tests.support.proxy import Proxy
from tests.support.waiting import eventually_async

OTHERS = "datname = current_database() and pid <> pg_backend_pid()"
# What it has last said: that it listens, or whether somebody is still there.
LISTENERS = f"select pid from pg_stat_activity where {OTHERS} and (query ilike 'listen %' or query = 'select 1')"


class Server:
    """A PostgreSQL of this test's own, which it may stop and start."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self._holder = Holder(place, "18", durable=False)
        self._holder.initdb()
        self._process: Popen[bytes] | None = None
        self.dsn = f"postgresql://postgres:{self._holder.password}@/postgres?host={place}"

    def start(self) -> None:
        self._process = self._holder.start()

    def stop(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None


@pytest.fixture
def own_server(scratch: Path) -> Iterator[Server]:
    server = Server(scratch / "server")
    server.start()
    with psycopg.connect(server.dsn, autocommit=True, prepare_threshold=None) as connection:
        migrate(connection)
    yield server
    server.stop(signal.SIGQUIT)


@asynccontextmanager
async def workers(dsn: str, do: Any, *, number: int = 2, **options: Any) -> AsyncIterator[list[Watched]]:
    """Some on one database, each with a client of its own."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(dsn, timeout=3)) for _ in range(number)]
        yield [await stack.enter_async_context(Watched(client, app_of(do, slots=4), **options)) for client in clients]


async def check(dsn: str, jobs: int, diary: Diary, *, lapses: bool = False) -> None:
    """Every job is done, once by the database's account and once by its handlers', unless leases have lapsed."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as db:
        assert await count(db, "select count(*) from sluicegate.job where state = 'done'") == jobs
        ends = await db.execute("select e.outcome, count(*) from sluicegate.attempt_end e group by 1")
        outcomes: dict[str, int] = dict(await ends.fetchall())
        assert outcomes.pop("completed") == jobs
        # Given back by a worker that did not hear the answer to its claim: it has not begun.
        never_begun = await count(
            db, "select count(*) from sluicegate.attempt_end where outcome = 'released' and not started"
        )
        assert outcomes.pop("released", 0) == never_begun
        assert set(outcomes) <= ({"lease_expired", "reaped"} if lapses else set()), outcomes
        open_ones = "select count(*) from sluicegate.attempt a where not exists (select from sluicegate.attempt_end e where e.attempt_id = a.id)"
        assert await count(db, open_ones) == 0
    assert len(diary.runs) == jobs
    assert not diary.twice_at_once
    if not lapses:
        assert set(diary.runs.values()) == {1}


@pytest.mark.slow
async def test_backends_terminated_again_and_again_lose_no_job_and_run_none_twice(dsn: str, db: Connection) -> None:
    """Every backend, those that listen included, while jobs are claimed, renewed and finished."""
    jobs, diary = rounds(200, 3000), Diary()

    async def do(payload: int) -> None:
        with diary.of(payload):
            await turns(payload % 40)

    async with workers(dsn, do, lease_seconds=60) as made:
        await made[0].worker._client.enqueue_many([NewJob(QUEUE, number) for number in range(jobs)])
        cuts = 0
        while len(diary.runs) < jobs or cuts < rounds(10, 100):
            await db.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {OTHERS}")
            cuts += 1
            await a_random_moment(0.02, 0.3)
        for one in made:
            await one.all_permits_back()
            await one.ready()
        await eventually_async(lambda: all_done(db, jobs), "all are recorded")
    await check(dsn, jobs, diary)


async def until_done(db: Connection, jobs: int) -> None:
    await eventually_async(lambda: all_done(db, jobs), f"{jobs} are recorded as done", timeout=60)


async def all_done(db: Connection, jobs: int) -> bool:
    return bool(await count(db, "select count(*) from sluicegate.job where state = 'done'") == jobs)


async def test_after_the_loss_of_its_listener_it_listens_again_and_looks_once(client: Client, db: Connection) -> None:
    """With nothing else that would make it look: neither a poll nor a wake-up."""
    diary = Diary()

    async def do(payload: int) -> None:
        with diary.of(payload):
            pass

    async def listeners() -> list[int]:
        return [row[0] for row in await (await db.execute(LISTENERS)).fetchall()]

    async with Watched(client, app_of(do, slots=1), poll=3600) as watched:
        (first,) = await eventually_async(listeners, "it listens")
        watched.slots._lookout = Lookout(Pace(3600, 3600))
        asleep = noting_plans(watched)
        await until(asleep, "it waits for an hour")
        await db.execute("select pg_terminate_backend(%s)", [first])
        await gone(db, first)
        # Told to nobody, since nobody listens.
        await client.enqueue(QUEUE, 1)
        await until(lambda: diary.runs[1], "it has looked for what it may have missed")
        (second,) = await eventually_async(listeners, "it listens again")
        assert second != first
        await until(asleep, "it waits for an hour again")
        await client.pause(QUEUE)
        await client.enqueue(QUEUE, 2)
        await client.resume(QUEUE)
        await until(lambda: diary.runs[2], "it is woken again")


def noting_plans(watched: Watched) -> Callable[[], bool]:
    """Make it plan once more; whether the last it has planned is to wait for very long."""
    plans: list[Plan] = []
    plan = watched.slots.plan

    async def noted(finishing: Mapping[str, int], unreported: Mapping[str, int]) -> Plan:
        plans.append(await plan(finishing, unreported))
        return plans[-1]

    watched.slots.plan = noted  # type: ignore[method-assign]
    assert watched.worker._run is not None
    watched.worker._run.wake()
    return lambda: bool(plans) and not plans[-1].asks and (plans[-1].wait or 0) > 1000


async def gone(db: Connection, pid: int) -> None:
    async def look() -> bool:
        return not await count(db, f"select count(*) from pg_stat_activity where pid = {pid}")

    await eventually_async(look, "the backend is gone")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restarted", "crashed"])
async def test_a_database_that_is_restarted_is_worked_on_again(own_server: Server, how: signal.Signals) -> None:
    """What runs goes on meanwhile, and is recorded afterwards."""
    slots, jobs, diary, door = 4, rounds(60, 600), Diary(), asyncio.Event()
    ended: list[int] = []

    async def do(payload: int) -> None:
        with diary.of(payload):
            await door.wait()
        ended.append(payload)

    # While all slots are used, it is a heartbeat that notices.
    async with workers(own_server.dsn, do, lease_seconds=24) as made:
        await made[0].worker._client.enqueue_many([NewJob(QUEUE, number) for number in range(jobs)])
        for number in range(rounds(2, 5)):
            await until(lambda: diary.inside.total() == 2 * slots, "all slots are used")
            own_server.stop(how)
            for one in made:
                await one.told("database_away", number + 1)
                assert not one.worker.health().ready
                assert one.worker.health().live
                assert one.worker.health().fault
            # They end while nobody can be told.
            before = len(ended)
            door.set()
            await until(lambda before=before: len(ended) == before + 2 * slots, "what ran has ended")
            assert sum(one.permits for one in made) <= 2 * slots
            # Or the first that is back would do all there is.
            door.clear()
            own_server.start()
            for one in made:
                await one.ready()
        door.set()
        await until(lambda: len(ended) == jobs, "all have run")
        for one in made:
            await one.all_permits_back()
        async with await psycopg.AsyncConnection.connect(own_server.dsn, autocommit=True) as db:
            await eventually_async(lambda: all_done(db, jobs), "all are recorded")
            rows = await eventually_async(lambda: listening(db, 2), "both listen again")
            assert len(rows) == 2
    await check(own_server.dsn, jobs, diary)


async def listening(db: Connection, number: int) -> list[Any]:
    rows = await (await db.execute(LISTENERS)).fetchall()
    return rows if len(rows) == number else []


@pytest.mark.slow
async def test_away_for_longer_than_the_lease_a_handler_is_cancelled_in_time_and_its_job_is_done_later(
    dsn: str, db: Connection
) -> None:
    """By its own clock, within a heartbeat, and before anybody else begins."""
    jobs, diary = 4, Diary()
    cancelled: dict[int, float] = {}

    async def do(context: Context, payload: int) -> None:
        with diary.of(payload):
            if context.attempt == 1 and payload < jobs:
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled[payload] = time.monotonic()

    with Proxy(dsn, tcp=True) as proxy:
        async with workers(proxy.dsn, do, number=1, lease_seconds=6) as (one,), Client(dsn) as direct:
            await direct.enqueue_many([NewJob(QUEUE, number) for number in range(jobs)])
            await one.told("started", jobs)
            assert one.worker._run is not None
            with proxy.blackhole():
                leases = list(one.worker._run._keeper._held.values())
                async with Watched(direct, app_of(do, slots=jobs)):
                    await one.ready(False)
                    with http_probe(one.worker.health, "127.0.0.1:0") as (host, port):
                        assert (await probed(f"{host}:{port}", "/live"))[0] == 200
                        assert (await probed(f"{host}:{port}", "/ready"))[0] == 503
                    await until(lambda: len(cancelled) == jobs, "all are cancelled")
                    for held in leases:
                        assert cancelled[held.claim.job.payload] < held.ends_at + held.length / 3
                    # Permits may be out for a claim that has no answer yet.
                    await until(lambda: one.slots.running == 0, "nothing runs")
                    await eventually_async(lambda: all_done(db, jobs), "somebody else has done them")
            await one.ready()
            await direct.enqueue(QUEUE, jobs)
            await eventually_async(lambda: all_done(db, jobs + 1), "it works on")
            assert len(await one.told("lost", jobs)) == jobs
            assert len(await one.told("done")) == 1
    assert [diary.runs[number] for number in range(jobs + 1)] == [2] * jobs + [1]
    assert not diary.twice_at_once


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes half a minute in earnest: the longest wait for an answer that never comes."""
    monkeypatch.setattr("sluicegate.worker.dispatcher._PATIENCE", 2.0)
    monkeypatch.setattr("sluicegate.worker.housekeeping._PATIENCE", 2.0)
    monkeypatch.setattr("sluicegate.worker.leases._PATIENCE", (0.5, 1.0))
    monkeypatch.setattr("sluicegate.worker.loop._SLOW", 0.5)
    monkeypatch.setattr("sluicegate.store.calls._LAST_PATIENCE", 0.5)
    monkeypatch.setattr("sluicegate.store.notices._SILENCE", 1.0)
    monkeypatch.setattr("sluicegate.store.notices._PATIENCE", 1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
async def test_connections_that_have_gone_silent_are_noticed_and_replaced(dsn: str, db: Connection) -> None:
    """Half-open: nothing comes, nothing is refused, and only new connections work."""
    diary, door = Diary(), asyncio.Event()

    async def do(payload: int) -> None:
        with diary.of(payload):
            await door.wait()

    with Proxy(dsn, tcp=True) as proxy:
        async with workers(proxy.dsn, do, number=1, lease_seconds=60) as made, Client(dsn) as direct:
            (one,) = made
            for number in range(rounds(2, 6)):
                door.clear()
                await direct.enqueue(QUEUE, 2 * number)
                await until(lambda number=number: diary.inside[2 * number], "one runs")
                before = await listening(db, 1) or await eventually_async(lambda: listening(db, 1), "it listens")
                proxy.silence()
                await direct.enqueue(QUEUE, 2 * number + 1)
                await one.told("database_away", number + 1)
                assert one.worker.health().live
                door.set()
                await until_done(db, 2 * number + 2)
                await one.ready()
                await one.all_permits_back()

                async def listens_anew(before: list[Any] = before) -> bool:
                    rows = await (await db.execute(LISTENERS)).fetchall()
                    return any(row not in before for row in rows)

                await eventually_async(listens_anew, "it listens on a new connection")
    await check(dsn, 2 * rounds(2, 6), diary)


async def test_a_worker_that_is_refused_its_questions_lets_what_runs_end_and_records_it(
    client: Client, db: Connection
) -> None:
    """As when an update has taken away what it calls: nobody else could go on for it."""
    inside, door = asyncio.Event(), asyncio.Event()

    async def do() -> str:
        inside.set()
        await door.wait()
        return "ended by itself"

    job = await client.enqueue(QUEUE)
    one = Watched(client, app_of(do, slots=2), grace=60, poll=0.1)
    await one.worker.start()
    await inside.wait()
    await db.execute("alter function sluicegate.demand rename to demand_of_old")
    await one.told("stopping")
    assert (one.worker.health().live, one.worker.health().ready) == (True, False)
    door.set()
    with pytest.raises(SchemaMismatch):
        await one.worker.finished()
    await one.all_permits_back()
    assert (await client.get_job(job.id)).job.result == "ended by itself"

"""A worker from start to stop: twice is fine, and what runs gets its time."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from functools import partial
from typing import Any, NoReturn

import psycopg
import pytest

from sluicegate import App, ClaimAnswers, Client, NoQueues, Unavailable, Worker
from sluicegate.worker.events import WorkerEvent
from tests.support.servers import Server
from tests.support.waiting import eventually_async


def app_of(function: Any, **options: Any) -> App:
    app = App()
    app.handler(queue="q", kind="", **options)(function)
    return app


async def counted(db: Any, query: str) -> Any:
    row = await (await db.execute(query)).fetchone()
    return row[0]


async def test_starting_and_stopping_twice_is_fine_and_a_new_one_goes_on(client: Client) -> None:
    async def do() -> None: ...

    worker = Worker(client, app_of(do))
    await asyncio.gather(worker.start(), worker.start())
    assert worker.health().state == "started"
    first, second = await asyncio.gather(worker.stop(), worker.stop())
    assert first.claimed == second.claimed == 0
    assert (worker.health().state, worker.health().live, worker.health().ready) == ("stopped", False, False)
    await client.enqueue("q")
    assert (await Worker(client, app_of(do), drain=True).run()).done == 1


async def test_what_runs_may_end_within_the_grace_and_nothing_more_is_claimed(client: Client, db: Any) -> None:
    inside, door = asyncio.Event(), asyncio.Event()

    async def do() -> str:
        inside.set()
        await door.wait()
        return "ended by itself"

    first, second = [await client.enqueue("q") for _ in range(2)]
    app = App({"q": {"max_workers": 1}})
    app.handler(queue="q", kind="")(do)
    worker = Worker(client, app, grace=60)
    await worker.start()
    await inside.wait()
    stopping = asyncio.create_task(worker.stop())
    await eventually_async(lambda: is_state(worker, "stopping"), "it is stopping")
    door.set()
    report = await stopping
    assert (report.done, report.released) == (1, 0)
    assert (await client.get_job(first.id)).job.result == "ended by itself"
    assert (await client.get_job(second.id)).job.attempts_total == 0


async def is_state(worker: Worker, state: str) -> bool:
    return worker.health().state == state


async def test_what_does_not_end_in_time_is_cancelled_and_given_back(client: Client) -> None:
    inside = asyncio.Event()

    async def do() -> None:
        inside.set()
        await asyncio.Event().wait()

    job = await client.enqueue("q")
    worker = Worker(client, app_of(do), grace=0)
    await worker.start()
    await inside.wait()
    report = await worker.stop()
    found = await client.get_job(job.id)
    assert (report.released, found.job.state, found.attempts[0].disposition) == (1, "pending", "requeued")


async def test_a_job_that_is_cancelled_ends_its_handler(client: Client) -> None:
    inside = asyncio.Event()

    async def do() -> None:
        inside.set()
        await asyncio.Event().wait()

    job = await client.enqueue("q")
    async with Worker(client, app_of(do), lease_seconds=3):
        await inside.wait()
        await client.cancel(job.id)
        await eventually_async(lambda: in_state(client, job.id, "cancelled"), "it is cancelled")


async def in_state(client: Client, job_id: int, state: str) -> bool:
    return (await client.get_job(job_id)).job.state == state


@pytest.mark.parametrize("taken_over", [False, True], ids=["reaped", "claimed again by the same worker"])
async def test_a_lost_lease_ends_its_handler_and_reports_nothing(client: Client, db: Any, taken_over: bool) -> None:
    inside, cancelled = asyncio.Event(), asyncio.Event()

    async def do() -> None:
        if inside.is_set():
            return
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    job = await client.enqueue("q")
    # With a single slot it does not look for jobs while that is taken.
    app = App({"q": {"max_workers": 2 if taken_over else 1}})
    app.handler(queue="q", kind="")(do)
    worker = Worker(client, app, lease_seconds=3 if not taken_over else 600)
    async with worker:
        await inside.wait()
        await db.execute("update sluicegate.job set lease_expires_at = sluicegate.clock() where id = %s", [job.id])
        assert taken_over or (await client.reap()).requeued == 1
        await cancelled.wait()
        await eventually_async(lambda: in_state(client, job.id, "done"), "done by its second attempt")
    found = await client.get_job(job.id)
    assert [attempt.outcome for attempt in found.attempts] == [
        "completed",
        "lease_expired" if taken_over else "reaped",
    ]
    report = await worker.finished()
    assert (report.claimed, report.done, report.lost) == (2, 1, 1)


async def test_a_handler_that_kept_the_loop_and_ended_within_its_lease_has_done_its_job(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could tell it to end in time, and nobody had to."""
    monkeypatch.setattr("sluicegate.worker.leases._FAREWELL_MOST", 598.0)
    monkeypatch.setattr("sluicegate.worker.leases._FAREWELL_SHARE", 1.0)
    runs = 0

    async def do() -> None:
        nonlocal runs
        runs += 1
        assert worker._run is not None
        farewell_at = worker._run._keeper._alarm_at
        while time.monotonic() <= farewell_at:
            pass

    await client.enqueue("q")
    worker = Worker(client, app_of(do), lease_seconds=600, drain=True)
    report = await worker.run()
    assert (runs, report.claimed, report.done, report.lost) == (1, 1, 1, 0)


class Late(Client):
    """A client whose claims, by its worker too, are answered late: ``came`` when there is an answer, given after ``go``."""

    came: asyncio.Event
    go: asyncio.Event

    def beside(self, **options: int) -> Client:
        found = super().beside(**options)
        vars(found).update(came=self.came, go=self.go)
        found.__class__ = Late
        return found

    async def claim_many(self, *arguments: Any, **named: Any) -> ClaimAnswers:
        answer = await super().claim_many(*arguments, **named)
        self.came.set()
        await self.go.wait()
        return answer


async def test_what_was_claimed_and_not_begun_goes_back_and_was_no_attempt(dsn: str, client: Client) -> None:
    async def do() -> None:
        raise AssertionError("it is begun")

    async with Late(dsn) as late:
        late.came, late.go = asyncio.Event(), asyncio.Event()
        job = await client.enqueue("q")

        def heard(event: WorkerEvent) -> None:
            if event.kind == "stopping":
                late.go.set()

        worker = Worker(late, app_of(do), on_event=heard)
        await worker.start()
        await late.came.wait()
        report = await worker.stop()
    assert (report.claimed, report.released) == (1, 1)
    found = await client.get_job(job.id)
    assert (found.job.state, found.job.attempt, found.job.attempts_total) == ("pending", 0, 1)
    assert (found.attempts[0].started, found.attempts[0].outcome) == (False, "released")


async def test_a_run_that_is_cancelled_leaves_nothing_running(client: Client) -> None:
    inside, ended = asyncio.Event(), asyncio.Event()

    async def do() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    job = await client.enqueue("q")
    worker = Worker(client, app_of(do))
    running = asyncio.create_task(worker.run())
    await inside.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()
    assert worker.health().state == "stopped"
    assert (await client.get_job(job.id)).job.state == "pending"


async def test_a_handler_that_does_not_listen_is_left_behind_with_its_lease(client: Client) -> None:
    inside, door = threading.Event(), threading.Event()

    def do() -> None:
        inside.set()
        door.wait()

    job = await client.enqueue("q")
    lost: list[str | None] = []
    worker = Worker(
        client, app_of(do), on_event=lambda event: lost.append(event.message) if event.kind == "lost" else None
    )
    await worker.start()
    await asyncio.to_thread(inside.wait)
    worker.ask_to_stop()
    worker.ask_to_stop()
    try:
        report = await worker.finished()
    finally:
        door.set()
    assert (report.claimed, report.released, report.lost) == (1, 0, 1)
    assert "did not end when the worker was stopped" in str(lost)
    assert (await client.get_job(job.id)).job.state == "claimed"


async def test_it_is_ready_when_the_database_has_answered_and_says_what_keeps_it(
    server: Server, client: Client, db: Any
) -> None:
    async def do() -> None: ...

    name = await counted(db, "select current_database()")
    outside = await psycopg.AsyncConnection.connect(server.dsn("postgres"), autocommit=True)
    async with outside, Worker(client, app_of(do)) as worker:
        await worker.started()
        assert (worker.health().ready, worker.health().fault) == (True, None)
        await outside.execute(f'alter database "{name}" allow_connections false')
        await outside.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
        await eventually_async(lambda: is_ready(worker, False), "it is not ready")
        assert worker.health().fault
        await outside.execute(f'alter database "{name}" allow_connections true')
        await eventually_async(lambda: is_ready(worker, True), "it is ready again, with nothing to do")
        assert worker.health().fault is None


class Mute(Client):
    """A client whose worker is never told what waits."""

    def beside(self, **options: int) -> Client:
        found = super().beside(**options)
        found.__class__ = Mute
        return found

    async def demand(self, *_: Any, **__: Any) -> NoReturn:
        raise Unavailable("It does not answer.")


async def test_one_that_ended_before_it_was_ready_says_so_to_whoever_waits_for_that(dsn: str) -> None:
    async def do() -> None: ...

    async with Mute(dsn) as mute, Worker(mute, app_of(do)) as worker:
        waiting = asyncio.create_task(worker.started())
        await worker.stop()
        with pytest.raises(Unavailable, match="ended before"):
            await waiting


async def test_who_waits_no_longer_for_its_start_leaves_no_task(dsn: str) -> None:
    async def do() -> None: ...

    async with Mute(dsn) as mute, Worker(mute, app_of(do)) as worker:
        await eventually_async(lambda: is_kept(worker), "all its parts run")
        before = asyncio.all_tasks()
        waiting = asyncio.create_task(worker.started())
        helpers = await eventually_async(lambda: waiting_since(before), "it waits")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait(helpers, timeout=15)
        assert all(task.cancelled() for task in helpers)


async def is_kept(worker: Worker) -> bool:
    return worker.health().fault is not None


async def waiting_since(before: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """The new tasks that wait for the start and for the end of a worker."""
    names = {task: getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks() - before}
    found = {task for task, name in names.items() if name in ("Worker.finished", "Event.wait")}
    return found if len(found) == 2 else set()


async def is_ready(worker: Worker, ready: bool) -> bool:
    return worker.health().ready is ready


async def test_what_makes_it_impossible_to_go_on_is_raised_and_told(client: Client) -> None:
    async def do() -> None: ...

    def heard(event: WorkerEvent) -> None:
        if event.kind == "started":
            raise ValueError("the log is full")

    worker = Worker(client, app_of(do), on_event=heard)
    await worker.start()
    await client.enqueue("q")
    with pytest.raises(ValueError, match="the log is full"):
        await worker.finished()
    assert (worker.health().state, worker.health().fault) == ("stopped", "the log is full")
    with pytest.raises(Unavailable):
        await Worker(Client("dbname=nowhere"), app_of(do)).start()


async def test_after_a_lost_connection_it_goes_on_and_loses_nothing(client: Client, db: Any) -> None:
    ran: list[int] = []

    async def do(payload: int) -> None:
        ran.append(payload)

    events: list[str] = []
    async with Worker(client, app_of(do), on_event=lambda event: events.append(event.kind)):
        for number in range(5):
            await db.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            await client.enqueue("q", number)
            await eventually_async(partial(is_done, ran, number), f"{number} is done")
    assert sorted(set(ran)) == list(range(5))
    assert await counted(db, "select count(*) from sluicegate.job where state <> 'done'") == 0


async def is_done(ran: list[int], number: int) -> bool:
    return number in ran


async def test_it_needs_no_more_than_the_role_of_a_worker(server: Server, client: Client, db: Any) -> None:
    async def do() -> str:
        return "done"

    name = f"login_{secrets.token_hex(4)}"
    await db.execute(f"create role {name} login password 'plain' in role sluicegate_worker")
    try:
        job = await client.enqueue("q")
        database = await counted(db, "select current_database()")
        async with Client(server.dsn(database, user=name, password="plain")) as member:
            report = await Worker(member, app_of(do), drain=True).run()
        assert (report.done, (await client.get_job(job.id)).job.result) == (1, "done")
    finally:
        await db.execute(f"drop role {name}")


async def test_a_queue_that_nobody_handles_is_refused_before_anything_is_claimed(client: Client) -> None:
    async def do() -> None: ...

    app = App({"q": {}, "other": {}})
    app.handler(queue="q", kind="")(do)
    with pytest.raises(NoQueues) as refused:
        Worker(client, app)
    assert refused.value.field == "other"
    with pytest.raises(NoQueues):
        Worker(client, App())

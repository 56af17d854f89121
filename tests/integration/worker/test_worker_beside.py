"""A worker beside others: other workers of its process, handlers that use its client, whoever starts and stops it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from functools import partial
from typing import Any

import pytest

from sluicegate import App, Client, InvalidArgument, Unavailable, Worker
from sluicegate.worker import forks
from sluicegate.worker.stopping import StopRequest, stopped_by_signals
from tests.integration.worker.test_worker_life import app_of, counted, is_ready
from tests.support.waiting import eventually_async


async def is_true(value: bool) -> bool:
    return value


async def test_handlers_that_take_all_connections_of_its_client_starve_no_lease(
    client: Client, db: Any, connect: Any
) -> None:
    """Each waits in a call of its own until the test lets go of a job; meanwhile leases are renewed, and jobs finished."""
    locked = await client.enqueue("other")
    app = App({"q": {"max_workers": 6}})

    @app.handler(queue="q", kind="wait")
    async def wait() -> None:
        with contextlib.suppress(Unavailable):
            await client.cancel(locked.id)

    @app.handler(queue="q", kind="quick")
    async def quick() -> None: ...

    holder = await connect(autocommit=False)
    await holder.execute("select from sluicegate.job where id = %s for update", [locked.id])
    waiting = [(await client.enqueue("q", kind="wait")).id for _ in range(5)]
    kinds: list[str] = []
    async with Worker(client, app, lease_seconds=1, on_event=lambda event: kinds.append(event.kind)) as worker:
        await eventually_async(lambda: is_true(kinds.count("started") == 5), "all wait")
        # The client's own connections are all taken.
        await db.execute("select sluicegate.enqueue('q', p_kind => 'quick')")
        await eventually_async(lambda: is_true("done" in kinds), "one that waits for nobody is done")
        for _ in range(2):
            ends = await counted(db, "select max(lease_expires_at) from sluicegate.job where kind = 'wait'")
            query = f"select min(lease_expires_at) > '{ends}' from sluicegate.job where kind = 'wait'"
            await eventually_async(partial(counted, db, query), "all leases are renewed")
        assert "lost" not in kinds
        await holder.rollback()
        await eventually_async(lambda: is_true(kinds.count("done") == 6), "all are done")
        report = await worker.stop()
    assert (report.done, report.lost) == (6, 0)
    assert (
        await counted(db, f"select count(*) from sluicegate.attempt where job_id = any ('{{{str(waiting)[1:-1]}}}')")
        == 5
    )


async def test_a_signal_stops_every_worker_of_the_process(client: Client) -> None:
    async def do() -> None: ...

    workers = [Worker(client, app_of(do)) for _ in range(3)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    for worker in workers:
        await eventually_async(lambda worker=worker: is_ready(worker, True), "it is ready")  # type: ignore[misc]
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(60):
        await asyncio.gather(*running)
    assert [worker.health().state for worker in workers] == ["stopped"] * 3
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_worker_that_begins_while_another_ends_at_once_hears_the_next_signal() -> None:
    first, second = StopRequest(), StopRequest()
    elsewhere: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: elsewhere.append(number))
    try:
        with stopped_by_signals(first):
            for stop in (first.asked, first.at_once):
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.wait_for(stop.wait(), 60)
            with stopped_by_signals(second):
                os.kill(os.getpid(), signal.SIGTERM)
                await eventually_async(lambda: is_true(second.asked.is_set() or bool(elsewhere)), "it is heard")
                assert (second.asked.is_set(), second.at_once.is_set(), elsewhere) == (True, False, [])
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually_async(lambda: is_true(elsewhere == [signal.SIGTERM]), "it has the effect it had before")
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("how", ["ask", "stop"])
async def test_what_is_told_to_stop_before_it_starts_never_begins(client: Client, how: str) -> None:
    async def do() -> None: ...

    job = await client.enqueue("q")
    worker = Worker(client, app_of(do), drain=True)
    if how == "ask":
        worker.ask_to_stop()
    else:
        assert (await worker.stop()).claimed == 0
    assert (await worker.run()).claimed == 0
    assert worker.health().state == "stopped"
    assert (await client.get_job(job.id)).job.attempts_total == 0


async def test_nobody_waits_for_one_that_has_not_been_started(client: Client) -> None:
    async def do() -> None: ...

    with pytest.raises(InvalidArgument, match="has not been started"):
        await Worker(client, app_of(do)).started()


def test_one_worker_belongs_to_one_event_loop(dsn: str) -> None:
    async def do() -> None: ...

    async def run(worker: Worker | None = None) -> Worker:
        async with Client(dsn) as client:
            worker = worker or Worker(client, app_of(do), drain=True)
            await worker.run()
            return worker

    worker = asyncio.run(run())
    with pytest.raises(InvalidArgument, match="another event loop") as refused:
        asyncio.run(run(worker))
    assert "new Worker" in str(refused.value.next_step)


async def test_a_worker_that_has_gone_leaves_nothing_behind_for_forks(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook for forks cannot be taken away again."""

    async def do() -> None: ...

    gc.collect()
    before = len(forks._watched)
    hooks: list[Any] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **hook: hooks.append(hook))
    for _ in range(2):
        await Worker(client, app_of(do), drain=True).run()
    assert hooks == []
    gc.collect()
    assert len(forks._watched) == before

"""A worker whose database goes away: what runs goes on, nothing is lost, nothing is done by two."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from sluicegate import Client
from sluicegate.model import NewJob
from sluicegate.worker.exec import StopRequest, WorkerEvent, WorkerReport, run_exec
from tests.integration.worker.support import QUEUE, Marked, sh
from tests.support.counts import rounds
from tests.support.servers import Server
from tests.support.waiting import eventually_async

Admin = psycopg.AsyncConnection[tuple[object, ...]]

_CUT = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()"


@pytest.fixture
def database(dsn: str) -> str:
    return psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]  # type: ignore[return-value]


@pytest.fixture
async def admin(server: Server, database: str) -> AsyncIterator[Admin]:
    """A connection to another database of the same server."""
    async with await psycopg.AsyncConnection.connect(server.dsn("postgres"), autocommit=True) as connection:
        yield connection


@asynccontextmanager
async def unreachable(admin: Admin, database: str) -> AsyncIterator[None]:
    """Within, every connection to the database is cut and refused, as while a server restarts."""
    switch = sql.SQL("alter database {} allow_connections {}")
    await admin.execute(switch.format(sql.Identifier(database), sql.SQL("false")))
    await admin.execute(_CUT, (database,))
    try:
        yield
    finally:
        await admin.execute(switch.format(sql.Identifier(database), sql.SQL("true")))


class Watch:
    """Collects a run's events and waits for them."""

    def __init__(self) -> None:
        self.events: list[WorkerEvent] = []
        self.stop = StopRequest()

    async def wait(self, kind: str, number: int = 1, timeout: float = 60) -> list[WorkerEvent]:
        async def look() -> list[WorkerEvent]:
            found = [event for event in self.events if event.kind == kind]
            return found if len(found) >= number else []

        return await eventually_async(look, f"{number} events {kind}", timeout)

    def run(self, client: Client, command: list[str], **options: object) -> "asyncio.Task[WorkerReport]":
        call: Callable[..., Awaitable[WorkerReport]] = run_exec
        return asyncio.ensure_future(
            call(client, QUEUE, command, on_event=self.events.append, stop=self.stop, **options)
        )


async def test_a_command_runs_on_and_is_recorded_when_the_database_is_back(
    dsn: str, admin: Admin, database: str, tmp_path: Path
) -> None:
    watch = Watch()
    async with Client(dsn, timeout=2) as client:
        job = await client.enqueue(QUEUE)
        run = watch.run(client, sh(f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; touch {tmp_path}/done"))
        await watch.wait("started")
        async with unreachable(admin, database):
            (tmp_path / "go").touch()
            await eventually_async(lambda: is_there(tmp_path / "done"), "the end of the command")
            await watch.wait("database_away")
        await watch.wait("done", timeout=15)
        await watch.wait("database_back")
        watch.stop.ask()
        report = await run
        assert (report.claimed, report.done, report.lost) == (1, 1, 0)
        detail = await client.get_job(job.id)
        assert [attempt.outcome for attempt in detail.attempts] == ["completed"]


async def test_without_the_database_a_command_is_ended_when_its_lease_is_over(
    dsn: str, admin: Admin, database: str, marked: Marked
) -> None:
    watch = Watch()
    async with Client(dsn, timeout=2) as client:
        job = await client.enqueue(QUEUE)
        run = watch.run(client, sh("sleep 301 & sleep 302; true"), lease_seconds=4)
        await marked.running("sleep 30", 2)
        async with unreachable(admin, database):
            (lost,) = await watch.wait("lost")
            await marked.gone("sleep 30")
            assert lost.message == "The lease ran out: no heartbeat reached the database in time."
        await watch.wait("started", 2, timeout=20)
        watch.stop.ask()
        watch.stop.insist()
        report = await run
        assert (report.lost, report.released) == (1, 1)
        outcomes = [attempt.outcome for attempt in (await client.get_job(job.id)).attempts]
        assert outcomes[-1] in ("lease_expired", "reaped")


async def test_a_worker_without_a_database_can_still_be_stopped(
    dsn: str, admin: Admin, database: str, marked: Marked
) -> None:
    watch = Watch()
    async with Client(dsn, timeout=2) as client:
        await client.enqueue(QUEUE)
        run = watch.run(client, ["sleep", "301"], grace=0)
        await watch.wait("started")
        async with unreachable(admin, database):
            watch.stop.ask()
            await watch.wait("stopping")
            await marked.gone("sleep 301")
            watch.stop.insist()
            report = await asyncio.wait_for(run, 30)
        assert (report.released, report.lost) == (0, 1)


async def test_a_database_that_was_away_for_long_is_found_again_in_seconds(
    dsn: str, admin: Admin, database: str
) -> None:
    watch = Watch()
    async with Client(dsn) as client:
        await client.enqueue(QUEUE)
        run = watch.run(client, ["true"])
        await watch.wait("done")
        async with unreachable(admin, database):
            await asyncio.wait((run,), timeout=rounds(5, 40))
        async with Client(dsn) as other:
            await other.enqueue(QUEUE)
        await watch.wait("done", 2, timeout=10)
        watch.stop.ask()
        assert (await run).done == 2


async def test_connections_that_are_cut_all_the_time_lose_no_job_and_start_none_twice(
    dsn: str, admin: Admin, database: str, tmp_path: Path
) -> None:
    """Every backend is terminated again and again while jobs are claimed, renewed and finished."""
    jobs = rounds(150, 1000)
    watch = Watch()
    enough = tmp_path.with_name(f"{tmp_path.name}-enough")
    async with Client(dsn) as client:
        made = await client.enqueue_many([NewJob(QUEUE, number) for number in range(jobs)])
        # The first job ends no sooner than after the fifth cut, however fast the others are.
        wait = f'while [ "$0" = 0 ] && [ ! -e {enough} ]; do sleep 0.05; done'
        run = watch.run(
            client,
            ["sh", "-c", f'{wait}; echo x >> {tmp_path}/"$0"', "{payload}"],
            concurrency=4,
            lease_seconds=60,
            drain=True,
        )
        cuts = 0
        while not run.done():
            await admin.execute(_CUT, (database,))
            cuts += 1
            if cuts == 5:
                enough.touch()
            await asyncio.wait((run,), timeout=random.uniform(0.02, 0.3))
        report = await run
        assert cuts >= 5
        assert (report.claimed, report.done, report.lost, report.failed) == (jobs, jobs, 0, 0)
    assert ran(tmp_path) == {str(number): "x\n" for number in range(jobs)}
    async with await psycopg.AsyncConnection.connect(dsn) as db:
        row = await (
            await db.execute(
                "select count(*), count(*) filter (where j.state = 'done' and j.attempts_total = 1),"
                " (select count(*) from sluicegate.attempt), (select count(*) from sluicegate.attempt_end),"
                " (select count(*) from sluicegate.late_call)"
                " from sluicegate.job j where id = any (%s)",
                ([job.id for job in made],),
            )
        ).fetchone()
    assert row == (jobs, jobs, jobs, jobs, 0)


async def is_there(path: Path) -> bool:
    return path in ran_files(path.parent)


def ran_files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def ran(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in ran_files(folder)}

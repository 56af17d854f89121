"""A cap on what is in flight, while workers are killed, stopped, and their jobs cancelled and deleted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest

from sluicegate import Client, Conflict
from sluicegate.model import NewJob
from tests.acceptance.conftest import PROGRAM
from tests.conftest import Connection
from tests.faults.fleet import (
    SCRIPT,
    Fleet,
    a_random_moment,
    any_record,
    check_records,
    count,
    ledger,
    read_records,
    wait_for_all,
)
from tests.integration.worker.support import QUEUE, Marked, StartWorker
from tests.support.counts import rounds
from tests.support.flight import FlightRecorder
from tests.support.waiting import eventually_async

# Of the twelve commands that the fleet could run at once.
CAP = 8
LEASE = 3
TICK = 0.05


@pytest.fixture
def superuser(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        yield connection


@pytest.fixture
def recorder(superuser: psycopg.Connection[Any]) -> FlightRecorder:
    return FlightRecorder(superuser)


async def govern(client: Client, cap: int, *, lanes: int = 1) -> None:
    day = {"max_claims_per_window": 1_000_000, "window": {"period": "day", "tz": "UTC"}}
    await client.set_policy(QUEUE, {"max_in_flight": cap, "limits": [day], "lanes": lanes})


async def check_charged(client: Client, db: Connection) -> None:
    """What was charged is what was opened, and nothing is in flight any more."""
    shown = await client.budget(QUEUE)
    day, flight = sorted(shown.gates, key=lambda gate: gate.gate, reverse=True)
    assert (day.gate, flight.gate) == ("window", "in_flight")
    opened = await count(db, "select count(*) from sluicegate.attempt")
    # A run across midnight was charged to two days.
    assert (day.used or 0) + sum(window.charged for window in shown.windows) == opened
    assert (flight.used, shown.status) == (0, "admitted")


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 4])
async def test_workers_that_are_killed_never_hold_more_than_the_cap_together(
    client: Client,
    db: Connection,
    start_worker: StartWorker,
    marked: Marked,
    recorder: FlightRecorder,
    tmp_path: Path,
    lanes: int,
) -> None:
    jobs, kills = rounds(150, 1500), rounds(5, 50)
    records, private = tmp_path / "records", tmp_path / "private"
    for folder in (records, private):
        folder.mkdir()
    await govern(client, CAP, lanes=lanes)
    await client.enqueue_many([NewJob(QUEUE, random.randrange(9), max_attempts=1000) for _ in range(jobs)])
    fleet = Fleet(start_worker, records, private)
    await eventually_async(lambda: any_record(records), "a first job that runs")
    for _ in range(kills):
        await a_random_moment()
        await fleet.kill_one()
    await wait_for_all(db, jobs)
    await fleet.stop()
    await marked.gone()
    assert recorder.most(QUEUE) == recorder.most_held(QUEUE) == CAP
    check_records(read_records(records), await ledger(db))
    await check_charged(client, db)


@pytest.mark.slow
async def test_cancelling_and_deleting_what_runs_frees_its_place_once(
    client: Client, db: Connection, start_worker: StartWorker, marked: Marked, recorder: FlightRecorder, tmp_path: Path
) -> None:
    jobs, blows = rounds(150, 1500), rounds(20, 200)
    records, private = tmp_path / "records", tmp_path / "private"
    for folder in (records, private):
        folder.mkdir()
    await govern(client, CAP, lanes=3)
    await client.enqueue_many([NewJob(QUEUE, random.randrange(9), max_attempts=1000) for _ in range(jobs)])
    fleet = Fleet(start_worker, records, private)
    await eventually_async(lambda: any_record(records), "a first job that runs")
    some = "select id from sluicegate.job where state = any(%s) order by random() limit 2"
    for number in range(blows):
        await a_random_moment()
        match number % 4:
            case 0:
                await fleet.kill_one()
            case 1:
                cursor = await db.execute(some, (["claimed"],))
                for (job_id,) in await cursor.fetchall():
                    # It may have ended since it was chosen.
                    with contextlib.suppress(Conflict):
                        await client.cancel(job_id)
            case 2:
                await db.execute(f"delete from sluicegate.job where id in ({some})", (["claimed", "pending"],))
            case _:
                await client.prune(job_days=0, keep_jobs=0)
    gone = "select count(*) from sluicegate.job where state not in ('done', 'cancelled')"

    async def over() -> bool:
        return bool(await count(db, gone) == 0)

    await eventually_async(over, "every job that is left is at its end", timeout=180)
    for worker in fleet.workers:
        await eventually_async(worker.is_serving, "the signal handlers")
        worker.signal(signal.SIGTERM)
    for worker in fleet.workers:
        await worker.report()
    await marked.gone()
    assert recorder.most(QUEUE) == recorder.most_held(QUEUE) == CAP
    assert await count(db, "select count(*) from sluicegate.job") < jobs
    await check_charged(client, db)


class Exec:
    """``sluicegate exec`` in a process of its own, and everything that it starts."""

    def __init__(self, dsn: str, records: Path, *, slots: int) -> None:
        self.everything = Marked("EXEC_TEST_WORKER")
        self.output = records.with_name(f"{self.everything.value}.jsonl")
        options = ["--concurrency", str(slots), "--lease", str(LEASE), "--json", "--worker", self.everything.value]
        command = ["sh", "-c", SCRIPT, str(records), "{payload}"]
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [str(PROGRAM), "exec", QUEUE, *options, "--", *command],
                env={**os.environ, "SLUICEGATE_DSN": dsn, self.everything.variable: self.everything.value},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def worker(self) -> str:
        return self.everything.value

    def signal(self, number: signal.Signals, *, everything: bool) -> None:
        """Send a signal to the worker, or to its guardian and its commands as well."""
        if not everything:
            self._process.send_signal(number)
            return
        # Twice: what a command was just starting when the list was made is on the second one.
        for _ in range(2):
            for pid in self.everything.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def told(self, event: str) -> list[dict[str, Any]]:
        lines = self.output.read_text().rpartition("\n")[0].splitlines()
        return [line for line in map(json.loads, lines) if line.get("event") == event]

    async def stop(self) -> None:
        self._process.terminate()
        await asyncio.to_thread(self._process.wait, 60)
        assert self._process.returncode == 0, self.output.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal(signal.SIGKILL, everything=True)
        self._process.wait()


def ticks(records: Path, job_id: int, attempt: int) -> int:
    """How many signs of life a command has given."""
    record = records / str(job_id)
    return record.read_text().splitlines().count(f"{attempt} tick") if record.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize("everything", [False, True], ids=["worker", "worker, guardian and commands"])
async def test_a_worker_that_stood_still_beyond_its_lease_has_lost_its_places_and_its_commands(
    client: Client,
    dsn: str,
    db: Connection,
    marked: Marked,
    recorder: FlightRecorder,
    tmp_path: Path,
    everything: bool,
) -> None:
    """Others take over in the meantime; once it goes on, what it ran is dead within a heartbeat."""
    records = tmp_path / "records"
    records.mkdir()
    await govern(client, 4)
    for number in range(1, rounds(1, 2) + 1):
        await client.enqueue_many([NewJob(QUEUE, 240, max_attempts=1000) for _ in range(6)])
        await one_stands_still(client, dsn, db, records, everything=everything)
        assert recorder.most(QUEUE) == recorder.most_held(QUEUE) == 4
        outcomes = "select count(*) from sluicegate.attempt_end where outcome = 'lease_expired'"
        assert await count(db, outcomes) == 2 * number
    await marked.gone()
    await check_charged(client, db)


async def one_stands_still(client: Client, dsn: str, db: Connection, records: Path, *, everything: bool) -> None:
    """Of two workers one stops with two commands, and goes on when the other has taken over their jobs."""

    async def held() -> list[tuple[int, int]]:
        query = "select id, attempt from sluicegate.job where state = 'claimed' and worker = %s"
        found = await (await db.execute(query, (stale.worker,))).fetchall()
        return found if len(found) == 2 and all(ticks(records, *one) > 0 for one in found) else []

    async def taken() -> bool:
        query = "select count(*) from sluicegate.job where id = any(%s) and attempts_total > 1 and worker = %s"
        row = await (await db.execute(query, ([job_id for job_id, _ in lost], fresh.worker))).fetchone()
        return row == (2,)

    async def told() -> bool:
        return len(stale.told("lost")) == 2

    async def done() -> bool:
        return bool(await count(db, "select count(*) from sluicegate.job where state <> 'done'") == 0)

    with Exec(dsn, records, slots=2) as stale:
        lost = await eventually_async(held, "two commands of the worker that will stand still", timeout=120)
        with Exec(dsn, records, slots=4) as fresh:
            stale.signal(signal.SIGSTOP, everything=everything)
            await eventually_async(taken, "both jobs taken over", timeout=120)
            before = {one: ticks(records, *one) for one in lost}
            stale.signal(signal.SIGCONT, everything=everything)
            await eventually_async(told, "it knows that it has lost them")
            later = {one: ticks(records, *one) for one in lost}
            assert all(later[one] - before[one] <= LEASE / 3 / TICK for one in lost), (before, later)
            assert everything or later == before, "the guardian needs nobody to tell it"
            await eventually_async(done, "every job done", timeout=180)
            assert {one: ticks(records, *one) for one in lost} == later
            await fresh.stop()
        await stale.stop()

"""``kill -9`` of workers with handlers at random moments: nothing is lost, nothing runs twice at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate import Client, NewJob
from tests.conftest import Connection
from tests.faults.fleet import a_random_moment, any_record, check_records, count, ledger, read_records, wait_for_all
from tests.support.counts import rounds
from tests.support.waiting import eventually_async

UNDONE = "select count(*) from sluicegate.job where state <> 'done'"
NOT_CLAIMED_OR_NOT_ENDED = """
    select count(*) from sluicegate.attempt a
    full join sluicegate.attempt_end e on e.attempt_id = a.id where a.id is null or e.attempt_id is null
"""
# Every claim is an attempt: what the jobs have counted is what the ledger holds.
CHARGED = """
    select coalesce(sum(attempts_total), 0)::bigint - (select count(*) from sluicegate.attempt) from sluicegate.job
"""
WORKERS = 3
SLOTS = 4
# A job writes one line when it begins, one every few hundredths of a second, and one when it ends. Those that are given
# nothing to do wait until all of them may end.
MODULE = """
import asyncio
from pathlib import Path
from sluicegate import App, Context

app = App({"a": {"weight": 3}, "b": {}}, global_max_workers=SLOTS)

async def do(context: Context, payload: int) -> None:
    def say(what):
        with Path("records", str(context.job.id)).open("a") as record:
            record.write(f"{context.attempt} {what}\\n")
    say("begin")
    while payload < 0 and not Path("go").exists():
        await asyncio.sleep(0.02)
    for _ in range(payload):
        await asyncio.sleep(0.02)
        say("tick")
    say("end")

for queue in ("a", "b"):
    app.handler(queue=queue, kind="")(do)
"""


class Workers:
    """Processes of ``sluicegate work``; one that is killed is replaced at once."""

    def __init__(self, place: Path, dsn: str) -> None:
        self._place = place
        self._environment = os.environ | {"SLUICEGATE_DSN": dsn}
        (place / "records").mkdir()
        (place / "doing.py").write_text(MODULE.replace("SLOTS", str(SLOTS)))
        self.running = [self._start() for _ in range(WORKERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        program = Path(sys.executable).with_name("sluicegate")
        with (self._place / "errors").open("ab") as errors:
            return subprocess.Popen(
                [program, "work", "doing:app", "--lease", "3", "--json"],
                cwd=self._place,
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def kill_one(self) -> None:
        index = random.randrange(WORKERS)
        self.running[index].kill()
        self.running[index].wait()
        self.running[index] = self._start()

    def stop(self) -> list[int]:
        """How each ended that was told to."""
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        return [process.wait(60) for process in self.running]

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def workers(tmp_path: Path, dsn: str) -> Iterator[Workers]:
    made = Workers(tmp_path, dsn)
    yield made
    made.close()


@pytest.mark.slow
async def test_workers_killed_at_random_moments_lose_nothing_and_run_nothing_twice(
    client: Client, db: Connection, workers: Workers, tmp_path: Path
) -> None:
    """At full size for three minutes, over 20,000 jobs and more."""
    records = tmp_path / "records"
    jobs = await add(client, rounds(300, 20_000))
    await eventually_async(lambda: any_record(records), "a first job that runs", timeout=60)
    kills, until = 0, time.monotonic() + rounds(0, 180)
    while kills < 10 or time.monotonic() < until:
        await a_random_moment()
        workers.kill_one()
        kills += 1
        if time.monotonic() < until and await count(db, UNDONE) < 1000:
            jobs += await add(client, 2000)
    await wait_for_all(db, jobs)

    # Every slot of every worker can be used again.
    jobs += await add(client, WORKERS * SLOTS, payload=-1)
    await eventually_async(lambda: all_run(db), "as many run at once as there are slots", timeout=60)
    (tmp_path / "go").touch()
    await wait_for_all(db, jobs)

    assert workers.stop() == [0] * WORKERS, (tmp_path / "errors").read_text()
    check_records(read_records(records), await ledger(db))
    assert await count(db, UNDONE) == 0
    assert await count(db, NOT_CLAIMED_OR_NOT_ENDED) == 0
    assert await count(db, CHARGED) == 0
    assert await count(db, "select count(*) from sluicegate.late_call") == 0, "nobody spoke for a job it had lost"


async def add(client: Client, number: int, payload: int | None = None) -> int:
    def one() -> NewJob:
        return NewJob(
            random.choice("aab"), random.randrange(rounds(40, 4)) if payload is None else payload, max_attempts=1000
        )

    for start in range(0, number, 10_000):
        await client.enqueue_many([one() for _ in range(min(10_000, number - start))])
    return number


async def all_run(db: Connection) -> bool:
    running = "select count(*) from sluicegate.job where state = 'claimed' and lease_expires_at > sluicegate.clock()"
    return bool(await count(db, running) == WORKERS * SLOTS)

"""Workers on one queue that are killed at random moments, and the records by which they are judged."""

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conftest import Connection
from tests.integration.worker.support import StartWorker, WorkerProcess
from tests.support.waiting import eventually_async

WORKERS = 4
SLOTS = 3
# A job writes one line when it begins, one every few hundredths of a second, and one when it ends.
SCRIPT = """
say() { echo "$SLUICEGATE_ATTEMPT $1" >> "$0/$SLUICEGATE_JOB_ID"; }
say begin
left=$1
while [ "$left" -gt 0 ]; do sleep 0.05; say tick; left=$((left - 1)); done
say end
"""


class Fleet:
    """Some workers on one queue; a killed one is replaced at once."""

    def __init__(self, start: StartWorker, records: Path, private: Path) -> None:
        self._start = start
        self._command = ["sh", "-c", SCRIPT, str(records), "{payload}"]
        self._private = private
        self.workers = [self._new() for _ in range(WORKERS)]

    def _new(self) -> WorkerProcess:
        return self._start(
            self._command, concurrency=SLOTS, lease_seconds=3, environment={"TMPDIR": str(self._private)}
        )

    async def kill_one(self) -> None:
        """Kill one that has begun to work, now and then one that has not."""

        async def working() -> list[int]:
            return [index for index, worker in enumerate(self.workers) if worker.output.stat().st_size > 0]

        index = random.randrange(WORKERS)
        if random.random() < 0.9:
            index = random.choice(await eventually_async(working, "a worker that works", timeout=60))
        self.workers[index].kill()
        self.workers[index] = self._new()

    async def stop(self) -> None:
        for worker in self.workers:
            await eventually_async(worker.is_serving, "a worker that listens")
            worker.process.terminate()
        for worker in self.workers:
            report = await worker.report()
            assert report["failed"] == report["lost"] == report["released"] == 0


def check_records(records: dict[int, list[tuple[int, str]]], ledger: dict[int, list[tuple[int, str]]]) -> None:
    """Compare what the jobs wrote, in the order they wrote it, with their attempts by the database's account."""
    assert len(ledger) == len(records)
    takeovers = 0
    for job_id, attempts in ledger.items():
        outcomes = Counter(outcome for _, outcome in attempts)
        assert outcomes["completed"] == 1, (job_id, attempts)
        assert set(outcomes) <= {"completed", "lease_expired", "reaped"}, (job_id, attempts)
        assert [number for number, _ in attempts] == list(range(1, len(attempts) + 1)), (job_id, attempts)
        assert attempts[-1][1] == "completed", (job_id, attempts)
        takeovers += len(attempts) - 1

        lines = records[job_id]
        numbers = [number for number, _ in lines]
        assert numbers == sorted(numbers), f"job {job_id} was run by two at a time: {lines}"
        begun = [number for number, what in lines if what == "begin"]
        assert len(begun) == len(set(begun)), f"an attempt of job {job_id} was started twice: {lines}"
        assert set(begun) <= {number for number, _ in attempts}
        assert (attempts[-1][0], "end") in lines, f"job {job_id} is done without having been done: {lines}"
    assert takeovers > 0


async def a_random_moment(least: float = 0.05, most: float = 0.8) -> None:
    """Let the workers go on for a while, in seconds, that has no rhythm in common with theirs."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(random.uniform(least, most)):
            await asyncio.Event().wait()


async def wait_for_all(db: Connection, jobs: int) -> None:
    """Return when every job is done; however slow the machine is, something has to be done in every minute."""
    done = -1
    while done < jobs:

        async def more(known: int = done) -> int:
            now: int = await count(db, "select count(*) from sluicegate.job where state = 'done'")
            return now + 1 if now > known else 0

        done = await eventually_async(more, f"more than {done} of {jobs} jobs done", timeout=60) - 1


async def ledger(db: Connection) -> dict[int, list[tuple[int, str]]]:
    """The attempts of each job, with their numbers and how they ended."""
    cursor = await db.execute(
        "select a.job_id, a.attempt, e.outcome from sluicegate.attempt a"
        " left join sluicegate.attempt_end e on e.attempt_id = a.id order by a.job_id, a.seq"
    )
    found: dict[int, list[tuple[int, str]]] = {}
    for job_id, number, outcome in await cursor.fetchall():
        found.setdefault(job_id, []).append((number, outcome))
    return found


async def count(db: Connection, query: str) -> Any:
    row = await (await db.execute(query)).fetchone()
    assert row is not None
    return row[0]


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def any_record(folder: Path) -> bool:
    return bool(names(folder))


def read_records(folder: Path) -> dict[int, list[tuple[int, str]]]:
    def lines(path: Path) -> list[tuple[int, str]]:
        return [(int(number), what) for number, what in map(str.split, path.read_text().splitlines())]

    return {int(path.name): lines(path) for path in folder.iterdir()}

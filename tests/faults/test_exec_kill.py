"""``kill -9`` of workers at random moments: the ledger and the jobs' own records agree, and nothing is left behind."""

import random
from pathlib import Path

import pytest

from sluicegate import Client
from sluicegate.model import NewJob
from tests.conftest import Connection
from tests.faults.fleet import (
    Fleet,
    a_random_moment,
    any_record,
    check_records,
    count,
    ledger,
    names,
    read_records,
    wait_for_all,
)
from tests.integration.worker.support import QUEUE, Marked, StartWorker
from tests.support.counts import rounds
from tests.support.waiting import eventually_async


@pytest.mark.slow
async def test_workers_killed_at_random_moments_lose_nothing_and_leave_nothing_behind(
    client: Client, db: Connection, start_worker: StartWorker, marked: Marked, tmp_path: Path
) -> None:
    jobs, kills = rounds(300, 5000), rounds(10, 200)
    records, private = tmp_path / "records", tmp_path / "private"
    for folder in (records, private):
        folder.mkdir()
    made = [NewJob(QUEUE, random.randrange(9), max_attempts=1000) for _ in range(jobs)]
    await client.enqueue_many(made)
    fleet = Fleet(start_worker, records, private)
    await eventually_async(lambda: any_record(records), "a first job that runs")

    working = 0
    for _ in range(kills):
        await a_random_moment()
        working += await count(db, "select count(*) from sluicegate.job where state = 'claimed'") > 0
        await fleet.kill_one()
    assert working >= kills * 0.8, "most kills hit while there was work"

    await wait_for_all(db, jobs)
    await fleet.stop()
    await marked.gone()
    assert names(private) == []

    check_records(read_records(records), await ledger(db))
    assert await count(db, "select sum(attempts_total) from sluicegate.job") == await count(
        db, "select count(*) from sluicegate.attempt"
    ), "attempts = claims"
    assert await count(db, "select count(*) from sluicegate.late_call") == 0, "nobody spoke for a job it had lost"

"""The counter that max_attempts bounds, in every order of what may befall a job.

What it must be is judged from the ledger alone: of the claims since the last retry-now, those that began work and the
one that is open, and never more than the cap.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sql.verbs import Json, Sql, check_ledger, released
from tests.support.counts import rounds

CAP = 2


class Walk:
    """One job, what is done to it, and the order in which that was done."""

    def __init__(self, sql: Sql) -> None:
        self.sql = sql
        self.job = sql.enqueue(max_attempts=CAP)
        self.forgotten = 0
        self.done: list[str] = []

    def check(self) -> None:
        row = self.sql.job(self.job)
        since = [attempt for attempt in self.sql.attempts(self.job) if attempt["seq"] > self.forgotten]
        begun = sum(attempt["started"] is not False for attempt in since)
        assert row["attempt"] == min(begun, row["max_attempts"]), self.done
        if row["state"] == "failed":
            assert row["attempt"] == row["max_attempts"], self.done

    def claim(self) -> Json:
        return self.sql.take_one(lease_seconds=60)

    def released_started(self) -> None:
        self.sql.release(self.claim())

    def released_unstarted(self) -> None:
        claim = self.claim()
        answer = self.sql.release(claim, started=False)
        assert answer["attempt"] == self.sql.job(self.job)["attempt"], self.done
        assert self.sql.release(claim, started=False)["replayed"] is True

    def released_unstarted_by_a_claim(self) -> None:
        claim = self.sql.call("claim_job", job_id=self.job, request_id="one")["claim"]
        replayed = self.sql.call("claim_job", job_id=self.job, request_id="one")
        assert replayed["replayed"] is True
        item = released(replayed["claim"], started=False)
        assert self.sql.release(claim, started=False)["status"] == "conflict"
        (answer,) = self.sql.claim("unknown", finished=[item])["finished"]
        assert answer["status"] == "ok", self.done
        self.sql.do("delete from sluicegate.request")

    def failed(self) -> None:
        self.sql.fail(self.claim(), retry_in_seconds=0.0)

    def lapsed(self) -> None:
        claim = self.claim()
        self.sql.lapse(self.job)
        self.sql.call("reap")
        assert self.sql.release(claim, started=False)["status"] == "conflict"

    def taken_over_and_released_unstarted(self) -> None:
        stale = self.claim()
        self.sql.lapse(self.job)
        for claim in self.sql.take(lease_seconds=60):
            self.check()
            assert self.sql.release(stale, started=False)["status"] == "conflict"
            self.sql.release(claim, started=False)

    def scheduled_and_retried(self) -> None:
        self.sql.release(self.claim(), not_before="2100-01-01T00:00:00Z")
        self.check()
        self.retry()

    def retry(self) -> None:
        assert self.sql.call("retry", job_id=self.job)["status"] == "ok", self.done
        self.forgotten = self.sql.job(self.job)["attempts_total"]


STEPS = (
    Walk.released_started, Walk.released_unstarted, Walk.released_unstarted_by_a_claim, Walk.failed, Walk.lapsed,
    Walk.taken_over_and_released_unstarted, Walk.scheduled_and_retried,
)  # fmt: skip


def orders(walk: Walk, depth: int) -> Iterator[int]:
    """Go through every order of ``depth`` steps; each is undone before the next is tried."""
    if depth == 0:
        yield 1
        return
    for step in STEPS:
        mark, forgotten = f"s{depth}", walk.forgotten
        walk.sql.do(f"savepoint {mark}")
        walk.done.append(step.__name__)
        step(walk)
        walk.check()
        if walk.sql.state(walk.job) == "failed":
            walk.done.append("retry")
            walk.retry()
            walk.check()
        yield from orders(walk, depth - 1)
        walk.sql.do(f"rollback to savepoint {mark}")
        del walk.done[-2 if walk.done[-1] == "retry" else -1 :]
        walk.forgotten = forgotten


@pytest.mark.both_versions
def test_the_counter_is_the_starts_since_the_last_retry_and_never_above_the_cap_in_any_order(sql: Sql) -> None:
    walk = Walk(sql)
    depth = rounds(3, 4)
    with sql.transaction():
        assert sum(orders(walk, depth)) == len(STEPS) ** depth
        check_ledger(sql)


def test_a_claim_at_the_cap_that_never_started_gives_nothing_back(sql: Sql) -> None:
    job = sql.enqueue(max_attempts=1)
    assert sql.release(sql.take_one())["attempt"] == 1
    assert sql.release(sql.take_one(), started=False)["attempt"] == 1
    assert [attempt["attempt"] for attempt in sql.attempts(job)] == [1, 1]
    assert sql.fail(sql.take_one())["dead_letter"] is True


def test_a_job_that_was_claimed_before_its_claims_were_marked_gives_its_attempt_back(sql: Sql) -> None:
    sql.enqueue(max_attempts=1)
    claim = sql.take_one()
    sql.do("update sluicegate.job set attempt_counted = null")
    assert sql.release(claim, started=False)["attempt"] == 0

"""The ledger: one attempt a committed claim, an end beside every other, and counters that agree with it."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.sql.verbs import Crowd, Json, Sql, check_ledger, completed, failed, lease, released
from tests.support.counts import rounds

QUEUES = ("a", "b", "c")


@dataclass
class Walker:
    """One connection doing random things; it remembers what the database told it."""

    sql: Sql
    random: random.Random
    opened: int = 0
    held: list[Json] = field(default_factory=list)
    dropped: list[Json] = field(default_factory=list)
    known: list[int] = field(default_factory=lambda: [1])
    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)

    def walk(self, steps: int) -> None:
        verbs: list[Callable[[], Any]] = [getattr(self, name) for name in dir(Walker) if name.startswith("do_")]
        for _ in range(steps):
            self.random.choice(verbs)()

    def queues(self) -> list[str]:
        return self.random.sample(QUEUES, self.random.randint(1, 3))

    def some_job(self) -> int:
        return self.random.choice(self.known)

    def note(self, claims: list[Json]) -> None:
        self.opened += len(claims)
        self.held += claims
        self.known += [claim["job"]["id"] for claim in claims]

    def drop(self) -> Json | None:
        """A claim of ours to end, or one that ended before: a worker that repeats itself."""
        if self.dropped and self.random.random() < 0.15:
            return self.random.choice(self.dropped)
        if not self.held:
            return None
        self.dropped.append(self.held.pop(self.random.randrange(len(self.held))))
        return self.dropped[-1]

    def do_enqueue(self) -> None:
        self.known.append(
            self.sql.enqueue(
                self.random.choice(QUEUES),
                priority=self.random.randint(0, 3),
                max_attempts=self.random.randint(1, 4),
                dedup_key=self.random.choice([None, "k1", "k2", "k3"]),
                backoff=self.random.choice([None, {"base_seconds": 0}]),
                request_id=self.random.choice([None, f"{self.random.random()}"]),
            )
        )

    def do_enqueue_many(self) -> None:
        jobs = [
            {"queue": self.random.choice(QUEUES), "dedup_key": self.random.choice([None, "k1", "k2", "k3", "k4"])}
            for _ in range(self.random.randint(1, 6))
        ]
        self.known += self.sql.enqueue_many(jobs)

    def do_claim(self) -> None:
        self.note(self.sql.take(*self.queues(), n=self.random.randint(1, 5), lease_seconds=self.random.choice([1, 60])))

    do_claim_again = do_claim

    def do_claim_and_repeat(self) -> None:
        request: dict[str, Any] = {"n": self.random.randint(1, 3), "request_id": f"{self.random.random()}"}
        queues = self.queues()
        first = self.sql.claim(*queues, **request)
        if not first["claims"]:
            return
        again = self.sql.claim(*queues, **request)
        assert again["replayed"]
        assert len(again["claims"]) + len(again["gone"]) == len(first["claims"])
        self.opened += len(first["claims"])
        self.held += again["claims"]
        self.dropped += first["claims"]

    def do_claim_with_finishes(self) -> None:
        items = []
        for _ in range(self.random.randint(1, 4)):
            if claim := self.drop():
                build = self.random.choice([completed, failed, released])
                items.append(build(claim))
        response = self.sql.claim(*self.queues(), n=self.random.randint(1, 4), finished=items)
        assert response["error"] is None
        assert len(response["finished"]) == len(items)
        for item, answer in zip(items, response["finished"], strict=True):
            self.statuses[item["outcome"], answer["status"]] += 1
        self.note(response["claims"])

    def do_claim_job(self) -> None:
        answer = self.sql.call("claim_job", job_id=self.some_job(), lease_seconds=self.random.choice([1, 60]))
        if answer["status"] == "ok":
            self.note([answer["claim"]])

    def do_complete(self) -> None:
        if claim := self.drop():
            self.statuses["completed", self.sql.complete(claim)["status"]] += 1

    def do_fail(self) -> None:
        if claim := self.drop():
            delay = self.random.choice([None, 0.0, 0.01])
            answer = self.sql.fail(claim, retry_in_seconds=delay, retry=self.random.random() < 0.8)
            self.statuses["failed", answer["status"]] += 1

    def do_release(self) -> None:
        if claim := self.drop():
            answer = self.sql.release(claim, started=self.random.choice([True, False]))
            self.statuses["released", answer["status"]] += 1

    def do_heartbeat(self) -> None:
        if self.held:
            items = [
                {**lease(claim), "lease_seconds": 60} for claim in self.random.sample(self.held, min(3, len(self.held)))
            ]
            self.sql.call("heartbeat_many", items=items)

    def do_cancel(self) -> None:
        self.sql.call("cancel", job_id=self.some_job())

    def do_retry(self) -> None:
        self.sql.call("retry", job_id=self.some_job())

    def do_lapse(self) -> None:
        self.sql.do(
            "update sluicegate.job set lease_expires_at = clock_timestamp() - interval '1 second' where id ="
            " (select id from sluicegate.job where state = 'claimed' order by random() limit 1 for update skip locked)"
        )

    def do_reap(self) -> None:
        self.sql.call("reap", limit=self.random.choice([1, 1000]))

    def do_prune(self) -> None:
        self.sql.do(
            "update sluicegate.attempt set opened_at = opened_at - interval '60 days' where ctid = any(array("
            " select ctid from sluicegate.attempt where opened_at > clock_timestamp() - interval '50 days'"
            " order by opened_at limit 2 for update skip locked))"
        )
        self.sql.call("prune", job_days=0, keep_jobs=self.random.choice([5, 500_000]))

    def do_roll_back(self) -> None:
        with self.sql.transaction():
            self.sql.claim(*self.queues(), n=3)
            self.sql.enqueue("a")


@pytest.mark.parametrize("seed", range(rounds(3, 12)))
def test_attempts_equal_claims_after_a_random_walk_of_eight_connections(
    sql: Sql, crowd: Callable[[int], Crowd], seed: int
) -> None:
    sql.enqueue_many([{"queue": queue} for queue in QUEUES * 5])
    callers = crowd(8)
    walkers = [Walker(member, random.Random(seed * 100 + n)) for n, member in enumerate(callers.members)]
    for _ in range(3):
        callers.all(lambda _, n: walkers[n].walk(rounds(60, 200)))
        assert check_ledger(sql) == sum(walker.opened for walker in walkers)
    statuses = sum((walker.statuses for walker in walkers), Counter[tuple[str, str]]())
    assert min(statuses[outcome, "ok"] for outcome in ("completed", "failed", "released")) > 0

    # Nothing is stuck: whatever is live can be brought to its end by claims alone.
    sql.do("update sluicegate.job set run_at = clock_timestamp() where state = 'scheduled'")
    sql.do("update sluicegate.job set lease_expires_at = clock_timestamp() where state = 'claimed'")
    opened = sum(walker.opened for walker in walkers)
    while claims := sql.take(*QUEUES, n=100):
        opened += len(claims)
        sql.claim("none", finished=[completed(claim) for claim in claims])
    assert sql.one("select count(*) from sluicegate.job where state in ('pending', 'scheduled', 'claimed')") == 0
    assert check_ledger(sql) == opened


def test_a_claimed_job_has_exactly_one_open_attempt_and_every_other_has_an_end(sql: Sql) -> None:
    job = sql.enqueue(max_attempts=20)
    sql.fail(sql.take_one(), retry_in_seconds=0)
    sql.release(sql.take_one(), started=False)
    sql.take_one()
    sql.lapse(job)
    sql.take_one()
    sql.lapse(job)
    sql.call("reap")
    sql.fail(sql.take_one(), retry=False)
    sql.call("retry", job_id=job)
    sql.call("cancel", job_id=job)
    sql.call("retry", job_id=job)
    sql.take_one()
    assert [(attempt["seq"], attempt["attempt"], attempt["outcome"]) for attempt in sql.attempts(job)] == [
        (1, 1, "failed"),
        (2, 2, "released"),
        (3, 2, "lease_expired"),
        (4, 3, "reaped"),
        (5, 4, "failed"),
        (6, 1, None),
    ]
    assert check_ledger(sql) == 6


def ended_by(sql: Sql, outcome: str, *, cap: bool = False, cancelled: bool = False) -> tuple[str | None, str | None]:
    """How the ledger records an attempt that ended so, perhaps the last one allowed, perhaps of a cancelled job."""
    job = sql.enqueue(max_attempts=1 if cap else 5)
    claim = sql.take_one()
    if cancelled:
        sql.call("cancel", job_id=job)
    match outcome:
        case "completed":
            sql.complete(claim)
        case "failed":
            sql.fail(claim)
        case "released":
            sql.release(claim)
        case "taken over":
            sql.lapse(job)
            sql.take_one()
        case _:
            sql.lapse(job)
            sql.call("reap")
    recorded = sql.ends(job)[0]
    sql.do("delete from sluicegate.job")
    return recorded


def test_every_end_is_recorded_as_one_of_the_pairs_of_the_documentation(sql: Sql) -> None:
    assert ended_by(sql, "completed") == ended_by(sql, "completed", cap=True) == ("completed", "done")
    assert ended_by(sql, "completed", cancelled=True) == ("completed", "done")
    assert ended_by(sql, "failed") == ("failed", "retry_scheduled")
    assert ended_by(sql, "failed", cap=True) == ("failed", "dead_lettered")
    assert ended_by(sql, "released") == ended_by(sql, "released", cap=True) == ("released", "requeued")
    assert ended_by(sql, "taken over") == ("lease_expired", "requeued")
    assert ended_by(sql, "reaped") == ("reaped", "requeued")
    assert ended_by(sql, "reaped", cap=True) == ("reaped", "dead_lettered")
    assert (
        ended_by(sql, "failed", cancelled=True)
        == ended_by(sql, "released", cancelled=True)
        == ("cancelled", "cancelled")
    )
    assert ended_by(sql, "reaped", cancelled=True)[1] == "cancelled"


def test_the_ledger_outlives_a_job_that_somebody_deletes(sql: Sql) -> None:
    job = sql.enqueue()
    sql.complete(sql.take_one())
    sql.do("delete from sluicegate.job")
    assert sql.ends(job) == [("completed", "done")]


def test_no_foreign_key_leads_from_job_or_attempt_to_anything(sql: Sql) -> None:
    keys = sql.rows(
        "select conname from pg_constraint where contype = 'f'"
        " and conrelid = any(array['sluicegate.job', 'sluicegate.attempt', 'sluicegate.attempt_end']::regclass[])"
    )
    assert keys == []

"""All verbs, policy changes, lane changes and replays from twenty connections at once, some of which die in the middle.

A step is a burst of concurrent calls, watched all the while, and then a quiet look at everything.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest

from sluicegate.testing import freeze_clock, set_clock
from tests.sql.admission_checks import Charges, check_limits, check_rule, passed
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, check_ledger, completed
from tests.sql.walkers import QUEUES, Walker
from tests.support.counts import rounds
from tests.support.servers import Server

CALLERS = 20
CALLS = 5


class Walk:
    """The callers, who watches them, who kills them, and what they must agree on."""

    def __init__(self, dsn: str, open_sql: OpenSql, seed: int) -> None:
        self.random = random.Random(seed)
        self.walkers = [Walker(dsn, seed * 1000 + number) for number in range(CALLERS)]
        self.sql = open_sql()
        self.watcher, self.killer = open_sql(), open_sql()
        self.charges = Charges()
        self.looks = 0
        self.windows = 0
        self._pool = ThreadPoolExecutor(CALLERS + 2)

    def close(self) -> None:
        self._pool.shutdown()
        for walker in self.walkers:
            walker.close()

    def step(self, *, edit_windows: bool) -> None:
        """One burst; while it lasts somebody looks at every limit as often as the database answers."""
        over = threading.Event()
        barrier = threading.Barrier(CALLERS + 2)

        def call(walker: Walker) -> None:
            barrier.wait(60)
            walker.walk(CALLS, edit_windows=edit_windows)

        def watch() -> list[Json]:
            barrier.wait(60)
            while not over.is_set():
                if wrong := passed(self.watcher):
                    return wrong
                self.looks += 1
            return []

        def kill() -> None:
            barrier.wait(60)
            for walker in self.random.sample(self.walkers, 3):
                self.killer.one("select pg_terminate_backend(%s)", walker.sql.pid)

        watching, killing = self._pool.submit(watch), self._pool.submit(kill)
        calls = [self._pool.submit(call, walker) for walker in self.walkers]
        try:
            for called in calls:
                called.result(120)
            killing.result(30)
        finally:
            over.set()
        assert watching.result(60) == []

    def look(self) -> None:
        """Everything is as it should be, now that nobody calls."""
        freeze_clock(self.sql.connection)
        assert check_ledger(self.sql) == sum(walker.opened for walker in self.walkers)
        self.windows += self.charges.check(self.sql)
        check_limits(self.sql)
        for queue in QUEUES:
            check_rule(self.sql, queue)
        audited = self.sql.one("select count(*) from sluicegate.policy_audit")
        edits, deaths = (sum(getattr(walker, what) for walker in self.walkers) for what in ("edits", "deaths"))
        # A change whose answer was cut off has been made twice, or once.
        assert edits <= audited <= edits + deaths

    def go_on(self) -> bool:
        """Let the clock run again, from a later time; whether a boundary lies just ahead."""
        now: datetime = self.sql.one("select sluicegate.clock()")
        boundary = self.sql.one(
            "select min(e) from sluicegate.lane l cross join unnest(l.ends) e where e > sluicegate.clock()"
        )
        if boundary is not None and self.random.random() < 0.25:
            set_clock(self.sql.connection, boundary - timedelta(milliseconds=50))
            return True
        set_clock(self.sql.connection, now + timedelta(seconds=self.random.choice([0, 1, 40, 400])))
        return False

    def seen(self) -> Counter[str]:
        return sum((walker.seen for walker in self.walkers), Counter[str]())


@pytest.fixture
def walk(dsn: str, another: OpenSql, request: pytest.FixtureRequest) -> Iterator[Walk]:
    made = Walk(dsn, another, seed=getattr(request, "param", 1))
    yield made
    made.close()


# What has to happen on the way: a walk goes on beyond its steps until it has met all of it.
MET = ["claimed", "refused", "set", "clear", "patch", "reset", "pause", "resume", "window_exhausted", "claim_job ok"]


def _walk(walk: Walk, server: Server, steps: int) -> None:
    database = walk.sql.one("select current_database()")
    walk.sql.enqueue_many({"queue": queue} for queue in QUEUES * 40)
    near = False
    for number in range(5 * steps):
        if number >= steps and all(walk.seen()[what] > 0 for what in MET):
            break
        # Which windows a policy has does not change while one of them ends: what left would be only partly charged.
        walk.step(edit_windows=not near)
        walk.look()
        near = walk.go_on()
    set_clock(walk.sql.connection, walk.sql.one("select sluicegate.clock()"))
    assert {what for what in MET if walk.seen()[what] == 0} == set()
    assert walk.looks > steps
    assert walk.windows > steps
    assert sum(walker.deaths for walker in walk.walkers) > 0
    assert [line for line in server.log_text().splitlines() if "deadlock detected" in line and database in line] == []
    _end(walk)


def _end(walk: Walk) -> None:
    """Without policies all that waits can be claimed and done: nothing is stuck, nothing was lost."""
    sql = walk.sql
    sql.do("update sluicegate.job set lease_expires_at = sluicegate.clock() where state = 'claimed'")
    sql.do("update sluicegate.job set run_at = sluicegate.clock() where state = 'scheduled'")
    for row in sql.rows("select q.name from sluicegate.queue q where q.governed"):
        sql.call("clear_admission_policy", queue=row["name"])
    opened = sum(walker.opened for walker in walk.walkers)
    while claims := sql.take(*QUEUES, n=100):
        opened += len(claims)
        sql.claim("none", finished=[completed(claim) for claim in claims])
    assert sql.one("select count(*) from sluicegate.job where state in ('pending', 'scheduled', 'claimed')") == 0
    assert check_ledger(sql) == opened


@pytest.mark.slow
def test_a_random_walk_of_twenty_dying_connections_passes_no_limit_and_charges_what_it_opens(
    walk: Walk, server: Server
) -> None:
    _walk(walk, server, rounds(20, 140))


@pytest.mark.soak
@pytest.mark.parametrize("walk", range(2, 6), indirect=True)
def test_a_long_random_walk(walk: Walk, server: Server) -> None:
    _walk(walk, server, 400)

"""What a claim reads, in pages and rows, is the same whatever stands beside the jobs it takes.

One database holds every case, each in a queue of its own: it is loaded once, by inserts that pass enqueue by. All is
measured twice: with plans that were made while the tables were empty, and with plans made after ANALYZE.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from sluicegate.testing import advance_clock
from tests.sql.reads import Reads, reads
from tests.sql.verbs import Sql, completed
from tests.support.counts import rounds
from tests.support.databases import Databases
from tests.support.servers import Server

# The group keeps all of them on one worker of the test run, which loads the rows once.
pytestmark = [pytest.mark.both_versions, pytest.mark.xdist_group("plan_claim")]

TAKEN = 10
MIDDLE = rounds(10_000, 100_000)
MOST = rounds(100_000, 1_000_000)
BURST = rounds(10_000, 100_000)
PINNED = rounds(20_000, 200_000)
TIMES = 3.0

CLAIM = "select sluicegate.claim(%s::jsonb)"
# The later they are made, the earlier they are due: they stand before what a rolled-back run has left behind.
PENDING = """
    insert into sluicegate.job (queue_id, scope_id, state, run_at, created_at)
    select q.id, q.scope_id, 'pending', timestamptz '2020-01-01 00:00Z' - (now() - timestamptz '2020-01-01 00:00Z')
        + n * interval '1 us', now()
    from sluicegate.queue q, generate_series(1, {rows}) n where q.name = '{queue}'
"""
ROWS = """
    insert into sluicegate.job
        (queue_id, scope_id, state, priority, run_at, attempt, attempts_total, created_at, lease_expires_at, finished_at)
    select q.id, q.scope_id, {state}, {priority}, now() + {due}, 1, 1, now(), {lease}::timestamptz, {finished}::timestamptz
    from sluicegate.queue q, generate_series(1, {rows}) n where q.name = '{queue}'
"""
LATER = "interval '1 day' + n * interval '1 ms'"


def beside(rows: int, state: str, *, priority: str = "10", due: str = LATER, ended: str = "null") -> str:
    """An insert of ``rows`` jobs; the queue is filled in later."""
    lease = "(now() + interval '1 day')" if state == "'claimed'" else "null"
    return ROWS.format(rows=rows, state=state, priority=priority, due=due, lease=lease, finished=ended, queue="{queue}")


ENDED = "case n % 3 when 0 then 'done' when 1 then 'failed' else 'cancelled' end"
# What stands beside the thousand pending jobs of a queue, by the queue's name.
BESIDE = {
    "future-better": beside(MOST, "'scheduled'", priority="1"),
    "future-equal": beside(MOST, "'scheduled'"),
    "future-spread": beside(MOST, "'scheduled'", priority="n % 20"),
    "finished": beside(MOST, ENDED, due="interval '-1 day'", ended="now()"),
    "claimed": beside(BURST, "'claimed'", due="interval '-1 day'"),
    "due-at-once": beside(BURST, "'scheduled'", due="interval '-1 second'"),
}
# Queues of that many pending jobs, and nothing else.
SIZES = {"pending-thousand": 1_000, "pending-middle": MIDDLE, "pending-most": MOST}
FINDS_NOTHING = ["future-better", "future-equal", "finished", "claimed"]


def request(queue: str, n: int = TAKEN) -> str:
    return json.dumps([{"queues": [queue], "n": n}])


def taking(connection: psycopg.Connection[Any], queue: str) -> Reads:
    """What a claim of ten reads; beside other jobs, it finds a thousand pending ones that live for this measurement only."""
    before = None if queue in SIZES else PENDING.format(rows=1000, queue=queue)
    return reads(connection, CLAIM, request(queue), before=before)


@dataclass
class Measured:
    """Reads by (plans, queue): of claims that take ten jobs, and of those that find none."""

    taking: dict[tuple[str, str], Reads] = field(default_factory=dict)
    nothing: dict[tuple[str, str], Reads] = field(default_factory=dict)


def measure(dsn: str) -> Measured:
    found = Measured()
    with connect(dsn) as old, connect(dsn) as loader:
        loader.execute("alter table sluicegate.job set (autovacuum_enabled = false)")
        for queue in ("alone", *BESIDE, *SIZES):
            loader.execute("select sluicegate.queue_id(sluicegate.scope_id(null), %s)", [queue])
        warm(old)
        found.nothing["empty", "alone"] = reads(old, CLAIM, request("alone"))
        found.taking["empty", "alone"] = taking(old, "alone")
        for queue, statement in BESIDE.items():
            loader.execute(statement.format(queue=queue))
        for queue, rows in SIZES.items():
            loader.execute(PENDING.format(rows=rows, queue=queue))
        look(old, "empty", found)
        # Few dead rows among so many: without being told, vacuum would leave their entries in the indexes.
        loader.execute("vacuum (analyze, index_cleanup on) sluicegate.job")
    with connect(dsn) as fresh:
        warm(fresh)
        look(fresh, "fresh", found)
    return found


def connect(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=True, prepare_threshold=None)


def warm(connection: psycopg.Connection[Any]) -> None:
    """Let every plan of a job's life be made, and settle."""
    sql = Sql(connection)
    for _ in range(8):
        sql.enqueue("warm")
        (claim,) = sql.take("warm")
        assert sql.complete(claim)["status"] == "ok"
        assert sql.claim("warm")["empty"] is True


def look(connection: psycopg.Connection[Any], plans: str, found: Measured) -> None:
    # First those that find nothing: jobs that are rolled back leave entries behind.
    for queue in (*FINDS_NOTHING, "future-spread"):
        found.nothing[plans, queue] = reads(connection, CLAIM, request(queue))
    for queue in (*BESIDE, *SIZES):
        found.taking[plans, queue] = taking(connection, queue)


@pytest.fixture(scope="session")
def _measured(_databases: Callable[[Server], Databases]) -> Callable[[Server], Measured]:
    known: dict[str, Measured | Exception] = {}

    def get(server: Server) -> Measured:
        if server.kind not in known:
            databases = _databases(server)
            name = databases.migrated()
            try:
                known[server.kind] = measure(server.dsn(name))
            except Exception as error:  # noqa: BLE001  # raised below, for every test that needs it, without a new try
                known[server.kind] = error
            finally:
                databases.drop(name)
        found = known[server.kind]
        if isinstance(found, Exception):
            raise found
        return found

    return get


@pytest.fixture
def measured(server: Server, _measured: Callable[[Server], Measured]) -> Measured:
    return _measured(server)


@pytest.mark.slow
@pytest.mark.parametrize("plans", ["empty", "fresh"])
@pytest.mark.parametrize("queue", [*BESIDE, *SIZES])
def test_a_claim_reads_no_more_beside_any_number_of_other_jobs(measured: Measured, queue: str, plans: str) -> None:
    base, seen = measured.taking["empty", "alone"], measured.taking[plans, queue]
    assert seen.within(base, TIMES), f"{seen}, and alone {base}"


@pytest.mark.slow
@pytest.mark.parametrize("plans", ["empty", "fresh"])
@pytest.mark.parametrize("queue", FINDS_NOTHING)
def test_a_claim_that_finds_nothing_reads_no_more_either(measured: Measured, queue: str, plans: str) -> None:
    base, seen = measured.nothing["empty", "alone"], measured.nothing[plans, queue]
    assert seen.within(base, TIMES), f"{seen}, and alone {base}"


@pytest.mark.slow
@pytest.mark.parametrize("plans", ["empty", "fresh"])
def test_future_jobs_cost_a_claim_that_finds_nothing_a_probe_a_priority(measured: Measured, plans: str) -> None:
    base, seen = measured.nothing["empty", "alone"], measured.nothing[plans, "future-spread"]
    # Two looks at twenty priorities, one when it chooses and one to tell empty from busy: an entry each, some levels deep.
    assert seen.rows - TIMES * base.rows <= 2 * 20
    assert seen.pages - TIMES * base.pages <= 2 * 20 * 6


def test_the_gate_sees_a_missing_index(sql: Sql) -> None:
    queue = "future-better"
    sql.one("select sluicegate.queue_id(sluicegate.scope_id(null), %s)", queue)
    warm(sql.connection)
    base = taking(sql.connection, queue)
    sql.do(beside(20_000, "'scheduled'", priority="1").format(queue=queue))
    sql.do("analyze sluicegate.job")
    assert taking(sql.connection, queue).within(base, TIMES)
    sql.do("drop index sluicegate.job_scheduled")
    seen = taking(sql.connection, queue)
    assert seen.rows > TIMES * base.rows
    assert seen.pages > TIMES * base.pages


def test_other_queues_of_the_scope_cost_nothing(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "alone"}] * 20)
    warm(sql.connection)
    calls = {
        CLAIM: request("alone"),
        "select sluicegate.enqueue(%s)": "alone",
        "select sluicegate.enqueue_many(%s::jsonb)": json.dumps([{"queue": "alone"}] * 10),
    }
    for _ in range(3):
        base = {call: reads(sql.connection, call, value) for call, value in calls.items()}
    sql.do(
        "insert into sluicegate.queue (endpoint_id, name)"
        " select sluicegate.scope_id(null), 'other' || n from generate_series(1, 5000) n"
    )
    seen = {call: reads(sql.connection, call, value) for call, value in calls.items()}
    assert {call: (one, base[call]) for call, one in seen.items() if not one.within(base[call], TIMES)} == {}


@pytest.mark.slow
def test_dead_entries_under_an_old_snapshot_are_stepped_over_once_and_then_passed_by(
    sql: Sql, dsn: str, another: Callable[[], Sql]
) -> None:
    for function in ("ready", "ready_from", "candidates"):
        # Hints live for an hour, so that this does not depend on the speed of the machine.
        sql.replace(function, ("interval '1 second'", "interval '1 hour'"))
    sql.one("select sluicegate.queue_id(sluicegate.scope_id(null), 'pinned')")
    sql.do(PENDING.format(rows=PINNED + 1000, queue="pinned"))
    sql.do("analyze sluicegate.job")
    warm(sql.connection)
    base = reads(sql.connection, CLAIM, request("pinned"))
    pin = another()
    pin.do("begin isolation level repeatable read")
    assert pin.one("select count(*) from sluicegate.job where state = 'pending'") == PINNED + 1000
    claims: list[dict[str, Any]] = []
    for _ in range(PINNED // 1000):
        claims = sql.claim("pinned", n=1000, finished=[completed(claim) for claim in claims])["claims"]
    sql.call("claim", requests=[], finished=[completed(claim) for claim in claims])
    # Now the snapshot is older than the leases were long.
    advance_clock(dsn, timedelta(hours=1))
    for table in ("ready_cursor", "lapse_hint"):
        sql.do(f"update sluicegate.{table} set looked_at = '-infinity'")
    assert not reads(sql.connection, CLAIM, request("pinned")).within(base, TIMES), "there should be much to step over"
    assert len(sql.take("pinned")) == 1
    for table in ("ready_cursor", "lapse_hint"):
        assert sql.one(f"select count(*) from sluicegate.{table} where looked_at > '-infinity'") == 1
    seen = reads(sql.connection, CLAIM, request("pinned"))
    assert seen.within(base, TIMES), f"{seen}, and before {base}"

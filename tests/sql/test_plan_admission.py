"""What a governed claim or a poll reads, in pages and rows, is the same whatever stands beside it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.sql.budgets import govern, window
from tests.sql.reads import Reads, reads
from tests.sql.verbs import Json, Sql, completed
from tests.support.counts import rounds

pytestmark = [pytest.mark.both_versions, pytest.mark.slow, pytest.mark.xdist_group("plan_admission")]

MOST = rounds(100_000, 1_000_000)
PINNED = rounds(20_000, 200_000)
POLLERS = rounds(10, 50)
AMPLE = [window(1_000_000), window(1_000_000, "hour")]
CLAIM = "select sluicegate.claim(%s::jsonb)"
PENDING = """
    insert into sluicegate.job (queue_id, scope_id, state, run_at, created_at)
    select q.id, q.scope_id, 'pending', timestamptz '2020-01-01 00:00Z' + n * interval '1 us', now()
    from sluicegate.queue q, generate_series(1, {rows}) n where q.name = '{queue}'
"""


def request(*queues: str, n: int = 1) -> str:
    return json.dumps([{"queues": list(queues), "n": n}])


def load(sql: Sql, queue: str, rows: int) -> None:
    sql.one("select sluicegate.queue_id(sluicegate.scope_id(null), %s)", queue)
    sql.do(PENDING.format(rows=rows, queue=queue))


def close(sql: Sql, queue: str, how: str) -> None:
    """Let a queue with jobs be closed by one gate; one of its jobs is taken for that."""
    fields: Json = {}
    limits = AMPLE
    if how == "window":
        limits = [window(1), window(1_000_000, "hour")]
    elif how == "in_flight":
        fields = {"max_in_flight": 1}
    govern(sql, queue, *limits, **fields)
    if how == "pause":
        sql.call("pause_queue", queue=queue)
    else:
        sql.take_one(queue, lease_seconds=86_400)


def polled(sql: Sql, *queues: str) -> Reads:
    """What a poll reads: first one that is committed, so that the session has counted as a poller has."""
    assert sql.claim(*queues)["deferred"]
    return reads(sql.connection, CLAIM, request(*queues))


def warm(sql: Sql) -> None:
    """Let every plan be made, and settle."""
    govern(sql, "warm", *AMPLE, max_in_flight=1_000)
    for _ in range(8):
        sql.enqueue("warm")
        claim = sql.take_one("warm")
        assert sql.complete(claim)["status"] == "ok"
        assert sql.claim("warm")["empty"] is True


@pytest.fixture
def quiet(sql: Sql) -> Sql:
    """A session whose plans are made, on tables that nothing vacuums; it remembers a full count for an hour."""
    for table in ("job", "lane"):
        sql.do(f"alter table sluicegate.{table} set (autovacuum_enabled = false)")
    # Two seconds by the machine's clock, which a test must not depend on.
    sql.replace("pending_seen", ("between 0 and 2", "between 0 and 3600"))
    warm(sql)
    return sql


@pytest.mark.parametrize("how", ["window", "in_flight", "pause"])
def test_polls_of_a_closed_queue_cost_the_same_with_any_backlog(
    quiet: Sql, another: Callable[[], Sql], how: str
) -> None:
    load(quiet, "few", 2)
    load(quiet, "most", MOST)
    quiet.do("vacuum (analyze) sluicegate.job")
    for queue in ("few", "most"):
        close(quiet, queue, how)
    base = polled(quiet, "few")
    pollers = [another() for _ in range(POLLERS)]
    for poller in pollers:
        assert poller.claim("most")["deferred"][0]["pending_exact"] is False
    seen = [polled(poller, "most") for poller in pollers[:3]]
    assert all(one.within(base) for one in seen), f"{seen}, and with one job {base}"


def test_a_claim_beside_a_closed_queue_with_any_backlog_reads_no_more(quiet: Sql) -> None:
    load(quiet, "few", 2)
    load(quiet, "most", MOST)
    load(quiet, "open", 5_000)
    quiet.do("vacuum (analyze) sluicegate.job")
    govern(quiet, "open", *AMPLE, max_in_flight=1_000)
    for queue in ("few", "most"):
        close(quiet, queue, "window")
    for n in (1, 10):
        base = reads(quiet.connection, CLAIM, request("few", "open", n=n))
        seen = reads(quiet.connection, CLAIM, request("most", "open", n=n))
        assert seen.within(base), f"{n}: {seen}, and beside one job {base}"
        alone = reads(quiet.connection, CLAIM, request("open", n=n))
        assert seen.within(alone), f"{n}: {seen}, and alone {alone}"


@pytest.mark.parametrize("batch", [1, 100])
def test_claims_under_an_old_snapshot_read_no_more_than_at_first(
    quiet: Sql, another: Callable[[], Sql], batch: int
) -> None:
    claims_made = PINNED if batch > 1 else rounds(3_000, 6_000)
    for function in ("ready", "ready_from", "candidates"):
        quiet.replace(function, ("interval '1 second'", "interval '1 hour'"))
    load(quiet, "pinned", claims_made + 1_000)
    quiet.do("analyze sluicegate.job")
    govern(quiet, "pinned", *AMPLE, max_in_flight=10_000)
    pin = another()
    pin.do("begin isolation level repeatable read")
    assert pin.one("select count(*) from sluicegate.lane") > 0

    def after(number: int) -> Reads:
        """What a claim reads once that many more jobs have been claimed and finished."""
        held: list[Json] = []
        made = 0
        while made < number:
            held = quiet.claim("pinned", n=batch, finished=[completed(claim) for claim in held])["claims"]
            assert held
            made += len(held)
        quiet.call("claim", requests=[], finished=[completed(claim) for claim in held])
        quiet.do("update sluicegate.ready_cursor set looked_at = '-infinity'")
        assert quiet.complete(quiet.take_one("pinned"))["status"] == "ok"
        return reads(quiet.connection, CLAIM, request("pinned"))

    base = after(batch)
    seen = after(claims_made)
    # Of each lane the claims of its last batch are passed over, dead as they are: at first in one lane or two, later in up to all.
    lanes = int(
        quiet.one(
            "select lanes from sluicegate.policy p join sluicegate.queue q on q.id = p.queue_id where q.name = 'pinned'"
        )
    )
    assert seen.pages <= 3 * base.pages, f"{seen}, and at first {base}"
    assert seen.rows <= 3 * base.rows + lanes * batch, f"{seen}, and at first {base}"

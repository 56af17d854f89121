"""A thousand polls of a queue that gives nothing: they charge nothing, and write nothing but how often they were refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from sluicegate.testing import advance_clock, freeze_clock
from tests.sql.budgets import ask, govern, opened, rows_and_locks, used, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql
from tests.support.counts import rounds

MOST = 1_000
ALWAYS = {("empty", 4), ("exhausted", 4)}
NOON = datetime(2026, 6, 10, 12, 0, tzinfo=UTC)
TABLES = (
    *("job", "attempt", "attempt_end", "attempt_count", "late_call", "request", "queue", "ready_cursor"),
    *("policy", "policy_limit", "budget_window", "lane", "usage", "forgiven", "policy_audit"),
)
WRITTEN = """
select relname, n_tup_ins + n_tup_upd + n_tup_del as written from pg_stat_user_tables where schemaname = 'sluicegate'
"""


def written(sql: Sql) -> dict[str, int]:
    """How many rows have ever been written in each table, by whomever; every session has reported."""
    return {row["relname"]: row["written"] for row in sql.rows(WRITTEN)}


def _empty(sql: Sql, lanes: int) -> list[str]:
    govern(sql, "q", window(9), max_in_flight=9, lanes=lanes)
    return []


def _never_used(sql: Sql, lanes: int) -> list[str]:
    sql.call("set_admission_policy", queue="q", policy={"max_in_flight": 9, "lanes": lanes})
    return []


def _finished(sql: Sql, lanes: int) -> list[str]:
    """Its budget is used up too, and nothing waits."""
    govern(sql, "q", window(3), lanes=lanes)
    sql.enqueue_many([{"queue": "q"}] * 3)
    taken = 0
    while taken < 3:
        claims = sql.take(n=3)
        taken += len(claims)
        for claim in claims:
            sql.complete(claim)
    return []


def _exhausted(sql: Sql, lanes: int) -> list[str]:
    govern(sql, "q", window(3), window(50, "hour"), lanes=lanes)
    sql.enqueue_many([{"queue": "q"}] * 9)
    while not ask(sql, n=9)["deferred"]:
        assert opened(sql) <= 3
    return ["window_exhausted"]


def _full(most: int) -> Callable[[Sql, int], list[str]]:
    def fill(sql: Sql, lanes: int) -> list[str]:
        govern(sql, "q", window(100_000), max_in_flight=most, lanes=lanes)
        sql.enqueue_many([{"queue": "q"}] * (most + 6))
        while not ask(sql, n=most)["deferred"]:
            assert opened(sql) <= most
        return ["in_flight_full"]

    return fill


def _paused(sql: Sql, lanes: int) -> list[str]:
    govern(sql, "q", window(9), lanes=lanes)
    sql.enqueue_many([{"queue": "q"}] * 6)
    sql.call("pause_queue", queue="q")
    return ["paused"]


def _unavailable(sql: Sql, lanes: int) -> list[str]:
    govern(sql, "q", window(9), lanes=lanes)
    sql.enqueue_many([{"queue": "q"}] * 6)
    sql.do("delete from sluicegate.policy")
    return ["admission_unavailable"]


QUEUES = {
    "empty": _empty,
    "never used": _never_used,
    "finished": _finished,
    "exhausted": _exhausted,
    "full": _full(4),
    "full with many": _full(150),
    "paused": _paused,
    "unavailable": _unavailable,
}


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", QUEUES)
def test_a_thousand_polls_write_nothing_to_jobs_attempts_lanes_and_usage(
    sql: Sql, another: OpenSql, name: str, lanes: int
) -> None:
    freeze_clock(sql.connection, NOON)
    reasons = QUEUES[name](sql, lanes)
    waiting = sql.rows("select id from sluicegate.job where state = 'pending' order by id")
    charged = opened(sql)
    member = another()
    kinds: list[Callable[[], Json]] = [
        member.claim,
        lambda: member.claim(n=7),
        lambda: member.claim("q", "nowhere", n=1000, lease_seconds=60),
        lambda: member.claim(request_id="again"),
    ]
    if waiting:
        kinds.append(lambda: member.call("claim_job", job_id=waiting[-1]["id"]))
    # The first of each may be the one that writes how often it was refused; and hints are looked up at most once a second.
    for kind in kinds:
        kind()
    ask(sql)
    sql.one("select pg_stat_force_next_flush()")
    member.one("select pg_stat_force_next_flush()")
    before, counts = rows_and_locks(sql), written(sql)
    for number in range(MOST if (name, lanes) in ALWAYS else rounds(100, MOST)):
        with member.transaction():
            answer = kinds[number % 4]()
            # A transaction without a number of its own has written no row, not even a lock on one.
            assert member.one("select pg_current_xact_id_if_assigned()") is None, (number % 4, answer)
        assert answer["claims"] == []
        assert [entry["reason"] for entry in answer["deferred"]] == reasons
        assert answer["empty"] is True
    for _ in range(20 if waiting else 0):
        assert kinds[-1]()["status"] == "deferred"
    sql.one("select pg_stat_force_next_flush()")
    member.one("select pg_stat_force_next_flush()")
    after = written(sql)
    assert {table: after[table] for table in TABLES} == {table: counts[table] for table in TABLES}
    assert opened(sql) == charged
    if not waiting:
        # A claim by id has to lock its job before it can know.
        assert rows_and_locks(sql) == before


def test_polls_of_many_sessions_write_their_refusals_once_a_second_each(sql: Sql, another: OpenSql) -> None:
    freeze_clock(sql.connection, NOON)
    _exhausted(sql, 3)
    members = [another() for _ in range(5)]
    for member in members:
        member.claim()
        member.one("select pg_stat_force_next_flush()")
    seconds, polls = rounds(3, 10), 40
    for second in range(seconds):
        sql.one("select pg_stat_force_next_flush()")
        start = written(sql)["refusal"]
        for _ in range(polls):
            for member in members:
                assert member.claim()["deferred"]
        for member in members:
            member.one("select pg_stat_force_next_flush()")
        assert written(sql)["refusal"] - start <= (0 if second == 0 else len(members))
        advance_clock(sql.connection, timedelta(seconds=1))
    for member in members:
        member.claim()
    total = sql.one("select sum(refused) from sluicegate.refusal where reason = 'window_exhausted'")
    # Those that filled the queue were refused once; each member counted every poll but what its last second keeps.
    assert total == 1 + len(members) * (2 + seconds * polls)
    assert used(sql) == opened(sql) == 3

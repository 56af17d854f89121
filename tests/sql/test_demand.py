"""Demand: how many jobs of each queue could start now, bounded by what was asked for, never decided by it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sluicegate.testing import advance_clock, freeze_clock
from tests.sql.admission_checks import NOON
from tests.sql.budgets import govern, window
from tests.sql.verbs import Json, Sql, refused


def demand(sql: Sql, *queues: str, most: int = 100) -> Json:
    """What ``demand`` says of each queue, by name."""
    answer = sql.call("demand", queues=list(queues), most=most)
    assert [entry["queue"] for entry in answer["queues"]] == list(queues)
    return {entry.pop("queue"): entry for entry in answer["queues"]}


def counts(entry: Json) -> tuple[int, int, str | None]:
    return entry["ready"], entry["waiting"], entry["reason"]


def test_what_waits_is_counted_to_what_was_asked_for_and_a_queue_nobody_made_has_nothing(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 7 + [{"queue": "other"}] * 2)
    found = demand(sql, "other", "q", "nobody", most=5)
    assert [counts(entry) for entry in found.values()] == [(2, 2, None), (5, 5, None), (0, 0, None)]
    assert [entry["waiting_exact"] for entry in found.values()] == [True, False, True]


def test_what_is_due_counts_whether_or_not_it_was_swept_and_what_is_not_due_does_not(sql: Sql) -> None:
    freeze_clock(sql.connection, NOON)
    for minutes in (1, 2, 60):
        sql.enqueue(run_at=NOON + timedelta(minutes=minutes))
    assert counts(demand(sql, "q")["q"]) == (0, 0, None)
    advance_clock(sql.connection, timedelta(minutes=5))
    assert counts(demand(sql, "q")["q"]) == (2, 2, None)


def test_a_lapsed_claim_that_may_be_taken_over_is_demand_and_a_spent_one_is_not(sql: Sql) -> None:
    first, second = sql.enqueue(max_attempts=2), sql.enqueue(max_attempts=1)
    assert len(sql.take(n=2)) == 2
    assert counts(demand(sql, "q")["q"]) == (0, 0, None)
    sql.lapse(first, second)
    assert counts(demand(sql, "q")["q"]) == (1, 1, None)


@pytest.mark.parametrize("lanes", [1, 3])
def test_no_more_is_ready_than_the_limits_leave_room_for(sql: Sql, lanes: int) -> None:
    freeze_clock(sql.connection, NOON)
    sql.enqueue_many([{"queue": "q"}] * 30)
    govern(sql, "q", window(20), window(8, "hour"), max_in_flight=5, lanes=lanes)
    assert counts(demand(sql, "q")["q"]) == (5, 30, None)
    (claim,) = sql.take(n=1)
    assert counts(demand(sql, "q")["q"]) == (4, 29, None)
    sql.complete(claim)
    for _ in range(3):
        for claim in sql.take(n=2):
            sql.complete(claim)
    assert counts(demand(sql, "q")["q"])[:2] == (1, 23)


def test_a_closed_queue_says_why_until_when_and_by_which_limit(sql: Sql) -> None:
    freeze_clock(sql.connection, NOON)
    sql.enqueue_many([{"queue": "q"}] * 3)
    govern(sql, "q", window(1), max_in_flight=5)
    sql.take(n=1)
    (entry,) = demand(sql, "q").values()
    assert counts(entry) == (0, 2, "window_exhausted")
    deferral = sql.claim()["deferred"][0]
    assert (entry["next_eligible_at"], entry["exact"], entry["all"]) == (
        deferral["next_eligible_at"], deferral["exact"], deferral["all"],
    )  # fmt: skip
    sql.call("pause_queue", queue="q")
    assert counts(demand(sql, "q")["q"]) == (0, 2, "paused")


def test_at_a_full_cap_a_lapsed_claim_is_ready_and_nothing_else(sql: Sql) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 5)
    govern(sql, max_in_flight=2)
    assert len(sql.take(n=2)) == 2
    assert counts(demand(sql, "q")["q"]) == (0, 3, "in_flight_full")
    sql.lapse(jobs[0])
    assert sql.claim(n=5)["claims"], "it is taken over"
    assert counts(demand(sql, "q")["q"]) == (0, 3, "in_flight_full")


def test_it_changes_nothing(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 3)
    govern(sql, max_in_flight=2)
    before = sql.contents()
    demand(sql, "q", "nobody")
    assert sql.contents() == before


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"queues": []}, "queues"),
        ({"queues": None}, "queues"),
        ({"queues": ["q"] * 1001}, "queues"),
        ({"queues": ["a b"]}, "queues"),
        ({"queues": ["q"], "most": 0}, "most"),
        ({"queues": ["q"], "most": 10_001}, "most"),
        ({"queues": ["q"], "most": None}, "most"),
    ],
)
def test_what_cannot_be_asked_is_refused(sql: Sql, arguments: Any, field: str) -> None:
    with refused(sql, "SG001", field):
        sql.call("demand", **arguments)
    with refused(sql, "SG002", "scope"):
        sql.call("demand", queues=["q"], scope="team:nobody")

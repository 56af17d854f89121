"""Limits that only count: they refuse nothing, touch nothing that is enforced, and say what they would have refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluicegate.testing import advance_clock, freeze_clock
from tests.sql.budgets import ask, check_lanes, gates, govern, most_in_flight, opened, used, window
from tests.sql.verbs import Crowd, Json, Sql

pytestmark = pytest.mark.usefixtures("midweek")

NOON = datetime(2026, 6, 10, 12, tzinfo=UTC)


def shadow(sql: Sql) -> dict[str, Json]:
    """The report by period, or by gate where there is none."""
    return {one["period"] or one["gate"]: one for one in sql.call("budget_show", queue="q")["shadow"]}


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_shadow_limit_of_one_lets_all_pass_and_says_how_many_it_would_have_refused(sql: Sql, lanes: int) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(9))
    govern(sql, "q", window(1, mode="shadow"), max_in_flight=1, in_flight_mode="shadow", lanes=lanes)
    for _ in range(7):
        answer = ask(sql)
        assert (len(answer["claims"]), answer["deferred"]) == (1, [])
    report = shadow(sql)
    assert (report["day"]["refused"], report["day"]["refused_before"], report["day"]["limit"]) == (6, 0, 1)
    assert (report["in_flight"]["refused"], report["in_flight"]["refused_before"]) == (6, None)
    assert sql.call("admission_status")["queues"][0]["status"] == "admitted"
    assert sql.call("budget_show", queue="q")["refused"] == {}


def test_a_limit_that_is_enforced_is_no_shadow(sql: Sql) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(3))
    govern(sql, "q", window(1), max_in_flight=5)
    ask(sql, n=3)
    assert shadow(sql) == {}


def test_windows_of_the_past_are_counted_apart(sql: Sql) -> None:
    freeze_clock(sql.connection, NOON)
    sql.enqueue_many({"queue": "q"} for _ in range(20))
    govern(sql, "q", window(2, mode="shadow"), lanes=3)
    for _ in range(3):
        ask(sql)
    assert (shadow(sql)["day"]["refused"], shadow(sql)["day"]["refused_before"]) == (1, 0)
    advance_clock(sql.connection, timedelta(days=1))
    assert (shadow(sql)["day"]["refused"], shadow(sql)["day"]["refused_before"]) == (0, 1)
    for _ in range(6):
        ask(sql)
    assert (shadow(sql)["day"]["refused"], shadow(sql)["day"]["refused_before"]) == (4, 1)
    advance_clock(sql.connection, timedelta(days=1))
    report = shadow(sql)["day"]
    assert (report["refused"], report["refused_before"]) == (0, 5)
    assert datetime.fromisoformat(report["since"]) == NOON.replace(hour=0)


def test_what_was_forgiven_would_not_have_been_refused(sql: Sql) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(5))
    govern(sql, "q", window(2, mode="shadow"))
    ask(sql, n=5)
    assert shadow(sql)["day"]["refused"] == 3
    sql.call("reset_usage", queue="q")
    assert shadow(sql)["day"]["refused"] == 0


def test_what_is_in_flight_is_judged_by_the_attempts_themselves(sql: Sql) -> None:
    freeze_clock(sql.connection, NOON)
    sql.enqueue_many({"queue": "q"} for _ in range(20))
    govern(sql, max_in_flight=2, in_flight_mode="shadow")
    for _ in range(4):
        sql.complete(ask(sql)["claims"][0])
        advance_clock(sql.connection, timedelta(minutes=1))
    assert shadow(sql)["in_flight"]["refused"] == 0
    held = [ask(sql)["claims"][0] for _ in range(3)]
    assert shadow(sql)["in_flight"]["refused"] == 1
    advance_clock(sql.connection, timedelta(minutes=1))
    sql.complete(held[0])
    sql.complete(held[1])
    # A place that is free at the very instant is free.
    ask(sql)
    assert shadow(sql)["in_flight"]["refused"] == 1
    ask(sql, n=3)
    assert shadow(sql)["in_flight"]["refused"] == 4
    assert most_in_flight(sql) == 5
    advance_clock(sql.connection, timedelta(days=8))
    assert shadow(sql)["in_flight"]["refused"] == 0


def test_a_takeover_takes_no_place_of_its_own(sql: Sql) -> None:
    job = sql.enqueue()
    govern(sql, max_in_flight=1, in_flight_mode="shadow")
    ask(sql)
    sql.lapse(job)
    assert len(ask(sql)["claims"]) == 1
    assert shadow(sql)["in_flight"]["refused"] == 0


@pytest.mark.parametrize("lanes", [1, 4])
def test_beside_a_shadow_limit_the_enforced_ones_are_exact(sql: Sql, crowd: Callable[[int], Crowd], lanes: int) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(40))
    govern(
        sql,
        "q",
        window(1, mode="shadow"),
        window(7, "week", weekday="Mon"),
        max_in_flight=2,
        in_flight_mode="shadow",
        lanes=lanes,
    )
    answers = crowd(20).all(lambda member, _: ask(member))
    assert sum(len(answer["claims"]) for answer in answers) == opened(sql) == used(sql, "week") == used(sql) == 7
    refused = [entry for answer in answers for entry in answer["deferred"]]
    assert {(gate["gate"], gate["period"]) for entry in refused for gate in entry["all"]} == {("window", "week")}
    report = shadow(sql)
    assert (report["day"]["refused"], report["in_flight"]["refused"]) == (6, 5)
    check_lanes(sql)


def test_enforcing_it_closes_the_queue_with_what_it_has_counted(sql: Sql) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(5))
    govern(sql, "q", window(2, mode="shadow"))
    ask(sql, n=3)
    govern(sql, "q", window(2))
    assert ask(sql)["deferred"][0]["all"][0]["used"] == 3
    assert (shadow(sql), gates(sql)["day"]["closed"]) == ({}, True)


@pytest.mark.parametrize(
    ("policy", "deferred"),
    [
        ({"limits": [window(1)]}, 3),
        ({"limits": [window(1, mode="shadow")]}, 0),
        ({"max_in_flight": 1}, 3),
        ({"max_in_flight": 1, "in_flight_mode": "shadow"}, 0),
    ],
)
def test_rehearsed_it_defers_nothing(sql: Sql, policy: dict[str, Any], deferred: int) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(4))
    sql.take("q", n=4)
    (day,) = sql.call("rehearse", queue="q", policy=policy)["per_day"]
    assert (day["claims"], day["deferred"]) == (4, deferred)


def test_the_last_thirty_windows_of_each_limit_are_shown(sql: Sql) -> None:
    freeze_clock(sql.connection, NOON)
    govern(sql, "q", window(9, "hour"), window(99, "week", weekday="Mon"))
    for _ in range(40):
        sql.enqueue()
        sql.complete(ask(sql)["claims"][0])
        advance_clock(sql.connection, timedelta(hours=6))
    shown = sql.call("budget_show", queue="q")["windows"]
    assert [one["charged"] for one in shown if one["period"] == "hour"] == [1] * 30
    # From Wednesday noon, four claims a day; the tenth day belongs to the second week.
    assert [one["charged"] for one in shown if one["period"] == "week"] == [18]
    assert len({one["starts"] for one in shown if one["period"] == "hour"}) == 30


def test_a_window_whose_limit_went_before_it_ended_says_that_it_is_partial(sql: Sql) -> None:
    def windows() -> list[tuple[int, bool]]:
        return [(one["charged"], one["partial"]) for one in sql.call("budget_show", queue="q")["windows"]]

    freeze_clock(sql.connection, NOON)
    govern(sql, "q", window(9, "hour"), lanes=2)
    sql.enqueue_many({"queue": "q"} for _ in range(20))
    ask(sql, n=2)
    govern(sql, max_in_flight=100, lanes=2)
    ask(sql, n=3)
    assert windows() == [(2, True)]
    # Back within the hour it has used what the attempts say, and is whole again.
    govern(sql, "q", window(9, "hour"), lanes=2)
    assert (used(sql, "hour"), windows()) == (5, [])
    ask(sql, n=1)
    advance_clock(sql.connection, timedelta(hours=1))
    assert windows() == [(6, False)]
    ask(sql, n=2)
    sql.call("clear_admission_policy", queue="q")
    sql.take("q", n=1)
    advance_clock(sql.connection, timedelta(hours=1))
    assert windows() == [(2, True), (6, False)]

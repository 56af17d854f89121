"""Bursts of callers on one budget: exactly what it allows is admitted, and everybody else is told so."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.sql.budgets import ask, check_lanes, fill, gates, govern, most_in_flight, opened, used, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Crowd, Sql, check_ledger, in_background, wait_blocked
from tests.support.counts import rounds

pytestmark = pytest.mark.usefixtures("midweek")

OpenCrowd = Callable[[int], Crowd]


def _policy(kind: str, most: int) -> dict[str, Any]:
    return {"max_in_flight": most} if kind == "in flight" else {"limits": [window(most, kind)]}


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("kind", ["day", "hour", "in flight"])
def test_of_fifty_callers_at_once_ten_are_admitted_and_forty_deferred(
    sql: Sql, crowd: OpenCrowd, kind: str, lanes: int
) -> None:
    callers = crowd(50)
    for number in range(rounds(2, 20)):
        queue = f"q{number}"
        sql.enqueue_many({"queue": queue} for _ in range(60))
        # Every other queue is asked while its first policy has not opened its lanes yet.
        govern(sql, queue, opened=number % 2 == 1, lanes=lanes, **_policy(kind, 10))
        answers = callers.all(lambda member, _, queue=queue: ask(member, queue))  # type: ignore[misc]
        assert sum(len(answer["claims"]) for answer in answers) == opened(sql, queue) == 10
        deferred = [answer["deferred"] for answer in answers if not answer["claims"]]
        assert len(deferred) == 40
        reason = "in_flight_full" if kind == "in flight" else "window_exhausted"
        assert {entry["reason"] for entries in deferred for entry in entries} == {reason}
        assert all(answer["deferred"] == [] and not answer["empty"] for answer in answers if answer["claims"])
        assert [ask(sql, queue)["deferred"][0]["pending"]] == [50]
    check_lanes(sql)
    check_ledger(sql)


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_batches_of_seven_fill_a_budget_exactly(sql: Sql, crowd: OpenCrowd, lanes: int) -> None:
    callers = crowd(20)
    for number, most in enumerate([0, 1, 2, 10, 100] * rounds(1, 10)):
        queue = f"q{number}"
        sql.enqueue_many({"queue": queue} for _ in range(140))
        govern(sql, queue, window(most), max_in_flight=most, lanes=lanes)
        answers = callers.all(lambda member, _, queue=queue: ask(member, queue, n=7))  # type: ignore[misc]
        found = sum(len(answer["claims"]) for answer in answers)
        short = [answer for answer in answers if len(answer["claims"]) < 7]
        assert all(answer["claims"] or answer["deferred"] for answer in short)
        # A batch may stop short at lanes that peers hold; a refusal proves that nothing was left.
        assert found == most or not any(answer["deferred"] for answer in answers)
        assert found + fill(sql, queue) == opened(sql, queue) == most
    check_lanes(sql)


def test_a_slot_that_is_freed_is_taken_once(sql: Sql, crowd: OpenCrowd) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(200))
    govern(sql, max_in_flight=3, lanes=2)
    callers = crowd(10)

    def work(member: Sql, _: int) -> int:
        done = 0
        while True:
            answer = ask(member)
            if answer["empty"]:
                return done
            for claim in answer["claims"]:
                member.complete(claim)
                done += 1

    assert sum(callers.all(work)) == 200
    assert most_in_flight(sql) <= 3
    check_ledger(sql)


def test_a_limit_that_moves_while_fifty_claim_is_never_passed(sql: Sql, crowd: OpenCrowd) -> None:
    callers = crowd(12)
    sql.enqueue_many({"queue": "q"} for _ in range(600))
    govern(sql, "q", window(100), lanes=4)

    def act(member: Sql, number: int) -> int:
        if number == 0:
            for most in [50, 100, 20, 100] * 3:
                govern(member, "q", window(most), opened=False, lanes=1 + most % 7)
            return 0
        return sum(len(ask(member, n=3)["claims"]) for _ in range(12))

    assert sum(callers.all(act)) == opened(sql) == used(sql) <= 100
    ask(sql, n=100)
    assert opened(sql) == used(sql) == 100
    check_lanes(sql)


def test_a_first_policy_waits_for_the_claims_that_are_in_the_air(sql: Sql, another: OpenSql) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(3))
    early = another()
    early.do("begin")
    assert len(early.take("q")) == 1
    govern(sql, "q", window(1), opened=False)
    for _ in range(3):
        answer = sql.claim()
        assert (answer["claims"], answer["deferred"], answer["empty"]) == ([], [], False)
    assert sql.call("claim_job", job_id=3)["status"] == "busy"
    early.commit()
    assert ask(sql)["deferred"][0]["all"][0]["used"] == 1
    assert (opened(sql), used(sql)) == (1, 1)


def test_a_first_policy_counts_nothing_of_a_claim_that_was_rolled_back(sql: Sql, another: OpenSql) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(3))
    early = another()
    with early.transaction():
        assert len(early.take("q")) == 1
        govern(sql, "q", window(1), opened=False)
        assert sql.take() == []
    assert len(ask(sql)["claims"]) == 1
    assert used(sql) == 1


def test_a_cap_over_running_jobs_counts_the_claims_made_without_it(sql: Sql) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(6))
    early = sql.take("q", n=3)
    govern(sql, max_in_flight=3, lanes=2)
    assert ask(sql)["deferred"][0]["reason"] == "in_flight_full"
    sql.complete(early[0])
    assert len(ask(sql, n=5)["claims"]) == 1
    govern(sql, max_in_flight=1)
    sql.complete(early[1])
    sql.complete(early[2])
    assert ask(sql)["deferred"][0]["all"][0]["used"] == 1


def test_a_claim_waits_for_a_lane_that_another_claim_holds(sql: Sql, another: OpenSql) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(3))
    govern(sql, "q", window(2))
    holder, waiter = another(), another()
    holder.do("begin")
    assert len(holder.take("q")) == 1
    waiting = in_background(lambda: waiter.take("q", n=2))
    wait_blocked(sql, waiter.pid, by=holder.pid)
    holder.commit()
    assert len(waiting.result(30)) == 1
    assert gates(sql)["day"]["used"] == 2

"""Lapsed claims under a cap: who takes them over, whose slot they hold, and who ends those that nobody may take over."""

from __future__ import annotations

import pytest

from sluicegate.testing import freeze_clock
from tests.sql.admission_checks import NOON, ask_alone, check_all, claimed, stock
from tests.sql.budgets import govern
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize(("lanes", "then"), [(1, 1), (3, 3), (5, 1), (1, 5)])
def test_at_a_full_cap_a_lapsed_claim_is_taken_over_and_no_other_starts(
    sql: Sql, by_id: bool, lanes: int, then: int
) -> None:
    freeze_clock(sql.connection, NOON)
    stock(sql, "q", 6, max_attempts=9)
    govern(sql, max_in_flight=3, lanes=lanes)
    held = [claim["job"]["id"] for _ in range(3) for claim in ask_alone(sql)["claims"]]
    govern(sql, max_in_flight=3, lanes=then)
    for job in [*held, *held]:
        sql.lapse(job)
        check_all(sql, "q")
        taken = sql.call("claim_job", job_id=job)["claim"] if by_id else ask_alone(sql)["claims"][0]
        assert taken["job"]["id"] == job
        check_all(sql, "q")
        assert ask_alone(sql, n=5)["deferred"][0]["reason"] == "in_flight_full"
        assert claimed(sql, "q") == 3
    sql.lapse(*held)
    assert sorted(claim["job"]["id"] for claim in ask_alone(sql, n=5)["claims"]) == held
    check_all(sql, "q")


@pytest.mark.parametrize("by_id", [False, True])
def test_in_debt_a_takeover_waits_as_well_until_the_debt_is_worked_off(sql: Sql, by_id: bool) -> None:
    freeze_clock(sql.connection, NOON)
    stock(sql, "q", 6)
    govern(sql, max_in_flight=3)
    held = ask_alone(sql, n=3)["claims"]
    govern(sql, max_in_flight=2)
    lapsed = held[0]["job"]["id"]
    sql.lapse(lapsed)
    check_all(sql, "q")

    def take() -> Json:
        answer = sql.call("claim_job", job_id=lapsed) if by_id else ask_alone(sql)
        return {"status": "ok" if answer["claims"] else "deferred"} if "claims" in answer else answer

    assert take()["status"] == "deferred"
    sql.complete(held[1])
    check_all(sql, "q")
    assert take()["status"] == "ok"
    assert claimed(sql, "q") == 2
    check_all(sql, "q")


# Lapsed claims that nobody may take over


@pytest.mark.parametrize("spent", [True, False], ids=["attempts spent", "cancelled"])
@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_lapsed_claim_that_nobody_may_take_over_is_reaped_by_the_claim_that_needs_its_slot(
    sql: Sql, spent: bool, by_id: bool, lanes: int
) -> None:
    freeze_clock(sql.connection, NOON)
    stock(sql, "q", 2, max_attempts=1)
    govern(sql, max_in_flight=2, lanes=lanes)
    stale = [claim for _ in range(2) for claim in ask_alone(sql)["claims"]]
    waiting = stock(sql, "q", 1)[0]
    if not spent:
        sql.do("update sluicegate.job set max_attempts = 9")
        for claim in stale:
            sql.call("cancel", job_id=claim["job"]["id"])
    assert ask_alone(sql)["deferred"]
    sql.lapse(*(claim["job"]["id"] for claim in stale))
    check_all(sql, "q")
    taken = sql.call("claim_job", job_id=waiting)["claim"] if by_id else ask_alone(sql)["claims"][0]
    assert taken["job"]["id"] == waiting
    assert claimed(sql, "q") == 1
    for claim in stale:
        assert sql.state(claim["job"]["id"]) == ("failed" if spent else "cancelled")
        assert sql.complete(claim)["status"] == "conflict"
        assert sql.heartbeat(claim)["status"] == "conflict"
    check_all(sql, "q")


def test_a_spent_claim_holds_up_no_takeover_of_another(sql: Sql) -> None:
    """With one slot for two lapsed claims, one of which nobody may take over, the other one goes on."""
    freeze_clock(sql.connection, NOON)
    first, spent = stock(sql, "q", 2)
    sql.do("update sluicegate.job set max_attempts = 1 where id = %s", spent)
    govern(sql, max_in_flight=2)
    ask_alone(sql, n=2)
    govern(sql, max_in_flight=1)
    sql.lapse(first, spent)
    check_all(sql, "q")
    assert [claim["job"]["id"] for claim in sql.take()] == [first]
    assert sql.state(spent) == "failed"
    check_all(sql, "q")


def test_a_spent_claim_that_is_just_being_renewed_keeps_its_slot(sql: Sql, another: OpenSql) -> None:
    stock(sql, "q", 1, max_attempts=1)
    govern(sql, max_in_flight=1)
    claim = sql.take_one()
    stock(sql, "q", 1)
    sql.lapse(claim["job"]["id"])
    holder = another()
    with holder.transaction():
        assert holder.heartbeat(claim)["status"] == "ok"
        assert sql.take() == []
        holder.commit()
    assert ask_alone(sql)["deferred"][0]["reason"] == "in_flight_full"
    assert sql.complete(claim)["status"] == "ok"

"""Fail closed: a policy that cannot be read or evaluated admits nothing of its queue, and touches no other."""

from collections.abc import Callable

import pytest

from tests.sql.budgets import ask, govern, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql

FAULTS: dict[str, tuple[str, str]] = {
    "policy renamed": (
        "alter table sluicegate.policy rename to elsewhere",
        "alter table sluicegate.elsewhere rename to policy",
    ),
    "limits renamed": (
        "alter table sluicegate.policy_limit rename to elsewhere",
        "alter table sluicegate.elsewhere rename to policy_limit",
    ),
    "lanes renamed": (
        "alter table sluicegate.lane rename to elsewhere",
        "alter table sluicegate.elsewhere rename to lane",
    ),
    "unknown zone": (
        "update sluicegate.budget_window set tz = 'Mars/Olympus'",
        "update sluicegate.budget_window set tz = 'UTC'",
    ),
    "row missing": (
        "create table public.kept as table sluicegate.policy; delete from sluicegate.policy",
        "insert into sluicegate.policy select * from public.kept",
    ),
    "windows missing": (
        "create table public.kept as table sluicegate.policy_limit; delete from sluicegate.policy_limit",
        "insert into sluicegate.policy_limit select * from public.kept",
    ),
}


@pytest.fixture
def closing(sql: Sql) -> Callable[[str], None]:
    govern(sql, "q", window(5), max_in_flight=4)
    sql.enqueue_many([{"queue": "q", "priority": 0}] * 3 + [{"queue": "free"}] * 9)
    ask(sql)

    def check(fault: str) -> None:
        (entry,) = sql.claim()["deferred"]
        assert (entry["reason"], entry["pending"], entry["next_eligible_at"]) == ("admission_unavailable", 2, None), (
            fault
        )
        assert sql.call("claim_job", job_id=2)["deferred"]["reason"] == "admission_unavailable"
        both = sql.claim("q", "free", n=2)
        assert [claim["job"]["queue"] for claim in both["claims"]] == ["free", "free"]
        assert sql.claim("free")["claims"]
        assert sql.job(2)["attempt"] == 0

    return check


@pytest.mark.parametrize("fault", FAULTS)
def test_a_policy_that_cannot_be_evaluated_admits_nothing_of_its_queue_only(
    sql: Sql, closing: Callable[[str], None], fault: str
) -> None:
    broken, mended = FAULTS[fault]
    sql.do(broken)
    closing(fault)
    if "renamed" not in fault:
        assert sql.call("admission_status")["queues"][0]["status"] == "admission_unavailable"
        assert sql.call("budget_show", queue="q")["status"] == "admission_unavailable"
    sql.do(mended)
    assert len(ask(sql, n=9)["claims"]) == 2


def test_a_policy_table_that_is_locked_away_is_unavailable_in_time(
    sql: Sql, another: OpenSql, closing: Callable[[str], None]
) -> None:
    holder = another()
    with holder.transaction():
        holder.do("lock table sluicegate.policy in access exclusive mode")
        closing("locked")
        began = sql.one("select clock_timestamp()")
        assert sql.claim("free")["claims"]
        sql.claim()
        assert (sql.one("select clock_timestamp()") - began).total_seconds() < 8
    assert len(ask(sql, n=9)["claims"]) == 2


def test_a_lane_that_stays_locked_is_unavailable_in_time(sql: Sql, another: OpenSql) -> None:
    govern(sql, "q", window(5))
    sql.enqueue_many([{"queue": "q"}] * 2 + [{"queue": "free"}])
    holder = another()
    with holder.transaction():
        holder.do("select 1 from sluicegate.lane for no key update")
        answer = sql.claim("q", "free", n=3)
        assert [claim["job"]["queue"] for claim in answer["claims"]] == ["free"]
    assert len(ask(sql, n=9)["claims"]) == 2


def test_what_is_unavailable_is_counted(sql: Sql) -> None:
    govern(sql, "q", window(5))
    sql.enqueue()
    sql.do("delete from sluicegate.policy")
    sql.claim()
    assert sql.rows("select reason, refused from sluicegate.refusal") == [
        {"reason": "admission_unavailable", "refused": 1}
    ]

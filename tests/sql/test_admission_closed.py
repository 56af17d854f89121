"""Fail closed: a policy that cannot be read or evaluated admits nothing of its queue, says so everywhere, and touches no other."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise

import psycopg
import pytest

from tests.sql.budgets import ask, govern, opened, rows_and_locks, used, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql, check_ledger, in_background, refused, wait_blocked
from tests.support.servers import Server
from tests.support.waiting import eventually

LANES = 3
TABLES = ("policy", "policy_limit", "budget_window", "lane")
# Each breaks the policy of queue "q", which is the first one, and leaves that of "other" whole.
INVALID = {
    "policy missing": "delete from sluicegate.policy where queue_id = 1",
    "first lane missing": "delete from sluicegate.lane where queue_id = 1 and lane = 0",
    "last lane missing": f"delete from sluicegate.lane where queue_id = 1 and lane = {LANES - 1}",
    "all lanes missing": "delete from sluicegate.lane where queue_id = 1",
    "one limit missing": "delete from sluicegate.policy_limit where queue_id = 1 and max_claims = 50",
    "all limits missing": "delete from sluicegate.policy_limit where queue_id = 1",
    "one window missing": "delete from sluicegate.budget_window where queue_id = 1 and period = 'hour'",
    "all windows missing": "delete from sluicegate.budget_window where queue_id = 1",
    "zone unknown": "update sluicegate.budget_window set tz = 'Mars/Olympus' where queue_id = 1 and period = 'hour'",
    "zone an abbreviation": "update sluicegate.budget_window set tz = 'CEST' where queue_id = 1 and period = 'hour'",
    "share of every lane null": "update sluicegate.lane set shares = '{null,null}' where queue_id = 1",
    "share of one lane null": "update sluicegate.lane set shares[2] = null where queue_id = 1 and lane = 1",
    "cap of every lane null": "update sluicegate.lane set cap = null where queue_id = 1",
    "cap of one lane null": "update sluicegate.lane set cap = null where queue_id = 1 and lane = 2",
    "windows of a lane swapped": "update sluicegate.lane set windows = windows[2:] || windows[:1] where queue_id = 1 and lane = 1",
    "windows of a lane gone": "update sluicegate.lane set windows = '{}', shares = '{}', used = '{}', forgiven = '{}', starts = '{}', ends = '{}' where queue_id = 1 and lane = 1",
}
# Not even whoever owns the tables can make a lane that would count less than it was charged.
IMPOSSIBLE = (
    "used = '{null,null}'",
    "used[1] = null",
    "used = '{}'",
    "used = '{-1,0}'",
    "shares[1] = -1",
    "forgiven[2] = null",
    "starts[1] = null",
    "ends = '{}'",
    "windows[1] = null",
    "cap = -1",
)


@pytest.fixture
def queues(sql: Sql) -> Json:
    """Queue "q" with two windows and a cap over three lanes, one claim running; "other" with a policy, "free" without."""
    govern(sql, "q", window(5), window(50, "hour"), max_in_flight=4, lanes=LANES)
    govern(sql, "other", window(100))
    jobs = sql.enqueue_many([{"queue": "q", "priority": 0}] * 6 + [{"queue": "free"}] * 30 + [{"queue": "other"}] * 9)
    (running,) = ask(sql)["claims"]
    assert sql.one("select id from sluicegate.queue where name = 'q'") == 1
    return {"job": jobs[5], "running": running}


def check_refusals(sql: Sql, job: int) -> None:
    """Claims and looks of every kind say that "q" is unavailable; its job is as it was, and others are served."""
    before = sql.job(job)
    for n in (1, 7):
        answer = ask(sql, n=n)
        (entry,) = answer["deferred"]
        assert answer["claims"] == []
        assert (entry["queue"], entry["reason"], entry["pending"]) == ("q", "admission_unavailable", 5)
        assert (entry["next_eligible_at"], entry["exact"]) == (None, False)
        assert [gate["gate"] for gate in entry["all"]] == ["policy"]
    by_id = sql.call("claim_job", job_id=job)
    assert (by_id["status"], by_id["deferred"]["reason"]) == ("deferred", "admission_unavailable")
    check_others(sql)
    assert sql.job(job) == before
    assert opened(sql) == 1


def check_others(sql: Sql, *, other: bool = True) -> None:
    """A queue without a policy is served alone and beside "q"; one with a whole policy too, if ``other``."""
    both = sql.claim("q", "free", n=2)
    assert [claim["job"]["queue"] for claim in both["claims"]] == ["free", "free"]
    assert both["deferred"] == []
    assert len(sql.claim("free")["claims"]) == 1
    if other:
        assert len(ask(sql, "other")["claims"]) == 1
        mixed = sql.claim("q", "other", "free", n=40)
        assert {claim["job"]["queue"] for claim in mixed["claims"]} == {"free", "other"}
        assert "q" in {entry["queue"] for entry in mixed["deferred"]}
        sql.enqueue_many([{"queue": "free"}] * 9)


def check_shown(sql: Sql, job: int, *, locked: bool = False) -> None:
    """Every surface names the fault, and the refusals are counted."""
    status = {queue["queue"]: queue for queue in sql.call("admission_status")["queues"]}
    assert status["q"]["status"] == "admission_unavailable"
    assert status["q"]["verdict"]["fault"]
    assert status["other"]["status"] == ("admission_unavailable" if locked else "admitted")
    assert sql.call("admission_status", queue="free")["queues"][0]["status"] == "ungoverned"
    shown = sql.call("budget_show", queue="q")
    assert (shown["status"], shown["verdict"]["fault"]) == ("admission_unavailable", status["q"]["verdict"]["fault"])
    assert shown["backlog"]["pending"] == 5
    assert shown["refused"]["admission_unavailable"] >= 1
    why = sql.call("explain", job_id=job)
    assert (why["waits_for"], why["verdict"]["reason"], why["expected_at"]) == (
        "admission",
        "admission_unavailable",
        None,
    )
    assert why["command"] == "sluicegate doctor"
    listed = {row["id"]: row for row in sql.call("list_jobs", queue="q")["jobs"]}
    assert listed[job]["admission"]["reason"] == "admission_unavailable"
    assert sql.call("get_job", job_id=job)["job"]["admission"]["reason"] == "admission_unavailable"
    following = {row["queue"]: row for row in sql.call("next_jobs", limit=100)["jobs"]}
    assert (following["q"]["reason"], following["q"]["expected_at"]) == ("admission_unavailable", None)
    assert following["free"]["status"] == "admitted"
    broken = {entry["queue"]: entry["fault"] for entry in sql.call("broken_policies")}
    assert broken.keys() >= {"q", "other"} if locked else broken.keys() == {"q"}
    assert all(broken.values())


@pytest.mark.both_versions
@pytest.mark.parametrize("fault", INVALID)
def test_an_invalid_policy_admits_nothing_until_it_is_set_anew(
    sql: Sql, another: OpenSql, queues: Json, fault: str
) -> None:
    assert sql.do(INVALID[fault]) >= 1
    # Another session: whether lanes that a claim does not need are whole, one looks up once a second.
    check_refusals(another(), queues["job"])
    check_shown(sql, queues["job"])
    # What keeps limits as they are would lose those that went missing.
    for verb, arguments in (
        ("pause_queue", {}),
        ("resume_queue", {}),
        ("reset_usage", {}),
        ("patch_admission_policy", {"patch": {"max_in_flight": 9}}),
    ):
        with refused(sql, "SG003", "policy"):
            sql.call(verb, queue="q", **arguments)
    assert sql.complete(queues["running"])["status"] == "ok"
    govern(sql, "q", window(5), window(50, "hour"), max_in_flight=4, lanes=LANES)
    assert used(sql) == used(sql, "hour") == 1
    assert sum(len(ask(sql, n=9)["claims"]) for _ in range(2)) == 4
    assert used(sql) == opened(sql) == 5
    check_ledger(sql)


@pytest.mark.parametrize("fault", INVALID)
def test_an_invalid_policy_can_be_cleared_and_its_use_is_kept(
    sql: Sql, another: OpenSql, queues: Json, fault: str
) -> None:
    sql.do(INVALID[fault])
    assert ask(another())["deferred"][0]["reason"] == "admission_unavailable"
    assert sql.call("clear_admission_policy", queue="q")["status"] == "ungoverned"
    assert len(sql.take("q")) == 1
    govern(sql, "q", window(5), lanes=LANES)
    assert used(sql) == opened(sql) == 2


@pytest.mark.parametrize("change", IMPOSSIBLE)
def test_a_lane_that_would_admit_too_much_cannot_be_stored(sql: Sql, queues: Json, change: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        sql.do(f"update sluicegate.lane set {change} where queue_id = 1")
    assert len(ask(sql)["claims"]) == 1


@pytest.mark.parametrize("table", TABLES)
def test_a_policy_whose_table_is_not_there_admits_nothing(sql: Sql, queues: Json, table: str) -> None:
    sql.do(f"alter table sluicegate.{table} rename to elsewhere")
    (entry,) = ask(sql)["deferred"]
    assert entry["reason"] == "admission_unavailable"
    assert sql.call("claim_job", job_id=queues["job"])["deferred"]["reason"] == "admission_unavailable"
    check_others(sql, other=False)
    check_shown(sql, queues["job"], locked=True)
    assert opened(sql) == 1
    sql.do(f"alter table sluicegate.elsewhere rename to {table}")
    assert sum(len(ask(sql, n=9)["claims"]) for _ in range(2)) == 3


class Waits:
    """Counts how often a session had to wait for a lock, however shortly: the server notes each wait of a millisecond.

    Whatever wakes the session in between makes it note the same wait again, so waits are told apart by when they began.
    """

    def __init__(self, server: Server, sql: Sql) -> None:
        self._server = server
        self._sql = sql
        self._seen = 0
        sql.do("set deadlock_timeout = '1ms'")
        sql.do("set log_lock_waits = on")

    def since(self) -> int:
        """How many since the last time."""
        noted = rf"^(\S+ \S+) UTC .* process {self._sql.pid} still waiting for .* after (\S+) ms"
        began = sorted(
            datetime.fromisoformat(at) - timedelta(milliseconds=float(waited))
            for at, waited in re.findall(noted, self._server.log_text(), re.MULTILINE)
        )
        total = bool(began) + sum(1 for last, this in pairwise(began) if this - last > timedelta(milliseconds=20))
        new, self._seen = total - self._seen, total
        return new


@pytest.mark.parametrize("table", TABLES)
def test_while_a_policy_table_is_locked_away_other_queues_are_served_without_waiting(
    sql: Sql, another: OpenSql, server: Server, queues: Json, table: str
) -> None:
    for number in range(8):
        govern(sql, f"more-{number}", window(5))
        sql.enqueue(f"more-{number}")
    holder, member = another(), another()
    waits = Waits(server, member)
    assert waits.since() == 0
    with holder.transaction():
        holder.do(f"lock table sluicegate.{table} in access exclusive mode")
        assert len(member.claim("free", n=3)["claims"]) == 3
        job = member.enqueue("free")
        assert member.call("claim_job", job_id=job)["status"] == "ok"
        assert member.call("admission_status", queue="free")["queues"][0]["status"] == "ungoverned"
        assert waits.since() == 0
        # In one call with governed queues: one short wait for all of them, whoever is asked for first.
        mixed = member.claim("q", "other", *(f"more-{number}" for number in range(8)), "free", n=100)
        sql.enqueue("free")
        assert {claim["job"]["queue"] for claim in mixed["claims"]} == {"free"}
        assert len(mixed["deferred"]) == 10
        assert {entry["reason"] for entry in mixed["deferred"]} == {"admission_unavailable"}
        assert waits.since() == 1
        assert member.call("claim_job", job_id=queues["job"])["deferred"]["reason"] == "admission_unavailable"
        assert waits.since() >= 1
        assert len(member.call("admission_status")["queues"]) == 10
        assert waits.since() <= 1
        check_shown(member, queues["job"], locked=True)
    assert sum(len(ask(sql, n=9)["claims"]) for _ in range(2)) == 3


def test_a_lane_that_stays_locked_is_unavailable_in_time(sql: Sql, another: OpenSql, queues: Json) -> None:
    holder, member = another(), another()
    sql.enqueue("alone")
    with holder.transaction():
        holder.do("select 1 from sluicegate.lane where queue_id = 1 for no key update")
        waiting = in_background(lambda: member.claim("q", "free", n=100))
        wait_blocked(sql, member.pid, by=holder.pid)
        assert len(sql.claim("alone")["claims"]) == 1
        answer = waiting.result(30)
        assert {claim["job"]["queue"] for claim in answer["claims"]} == {"free"}
        assert [(entry["queue"], entry["reason"]) for entry in answer["deferred"]] == [("q", "admission_unavailable")]
        by_id = member.call("claim_job", job_id=queues["job"])
        assert (by_id["status"], by_id["deferred"]["reason"]) == ("deferred", "admission_unavailable")
    assert sql.call("budget_show", queue="q")["refused"]["admission_unavailable"] >= 1
    assert len(ask(sql)["claims"]) == 1


def test_a_lock_on_a_lane_that_is_let_go_in_time_refuses_nobody(sql: Sql, another: OpenSql, queues: Json) -> None:
    holder, member = another(), another()
    holder.do("begin")
    holder.do("select 1 from sluicegate.lane where queue_id = 1 for no key update")
    waiting = in_background(member.claim)
    wait_blocked(sql, member.pid, by=holder.pid)
    holder.commit()
    assert len(waiting.result(30)["claims"]) == 1


def test_a_policy_changed_under_a_claim_is_no_fault(sql: Sql, another: OpenSql, queues: Json) -> None:
    """The claim has read the old policy and finds lanes that carry the new one."""
    holder, member = another(), another()
    holder.do("begin")
    holder.do("select 1 from sluicegate.lane where queue_id = 1 for no key update")
    waiting = in_background(lambda: member.claim(n=9))
    wait_blocked(sql, member.pid, by=holder.pid)
    holder.call("set_admission_policy", queue="q", policy={"limits": [window(3), window(40, "week", weekday="Mon")]})
    holder.commit()
    answer = waiting.result(30)
    taken = len(answer["claims"]) + sum(len(ask(sql, n=9)["claims"]) for _ in range(3))
    assert taken == 2
    assert used(sql) == used(sql, "week") == opened(sql) == 3
    assert sql.one("select count(*) from sluicegate.refusal where reason = 'admission_unavailable'") == 0


def test_polls_of_an_unavailable_queue_write_nothing_but_their_count(sql: Sql, queues: Json) -> None:
    sql.do("delete from sluicegate.policy where queue_id = 1")
    ask(sql)
    before = rows_and_locks(sql)
    for _ in range(20):
        assert ask(sql)["deferred"]
    assert rows_and_locks(sql) == before


@pytest.mark.parametrize("fault", ["policy missing", "zone unknown", "share of one lane null", "last lane missing"])
def test_many_claimers_at_once_get_nothing_of_an_invalid_policy(
    sql: Sql, crowd: Callable[[int], object], queues: Json, fault: str
) -> None:
    sql.do(INVALID[fault])
    members = crowd(10)
    answers = members.all(lambda member, number: [ask(member, n=1 + number % 4) for _ in range(5)])  # type: ignore[attr-defined]
    assert {entry["reason"] for each in answers for answer in each for entry in answer["deferred"]} == {
        "admission_unavailable"
    }
    assert opened(sql) == 1
    sql.call("clear_admission_policy", queue="q")
    eventually(lambda: ask(sql)["claims"], "a claim without a policy")

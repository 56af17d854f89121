"""What is charged, what is not, and that nothing gives a charge back."""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sluicegate.testing import advance_clock, freeze_clock
from tests.sql.budgets import ask, gates, govern, opened, rows_and_locks, used, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql, check_ledger, completed, failed

NOON = datetime(2026, 6, 10, 12, 0, tzinfo=UTC)


class Book:
    """What a queue of two windows and a cap was charged, against what was opened."""

    def __init__(self, sql: Sql, lanes: int) -> None:
        freeze_clock(sql.connection, NOON)
        govern(sql, "q", window(1_000), window(500, "hour"), max_in_flight=50, lanes=lanes)
        self._sql = sql
        self.charged = 0

    def check(self, more: int) -> None:
        """So many more were charged, to both windows, and opened."""
        self.charged += more
        assert used(self._sql) == used(self._sql, "hour") == opened(self._sql) == self.charged
        check_ledger(self._sql)


def _one(sql: Sql, **options: Any) -> Json:
    """A job and its claim."""
    job = sql.enqueue(**options)
    claim: Json = sql.call("claim_job", job_id=job)["claim"]
    return claim


@pytest.mark.parametrize("lanes", [1, 4])
def test_every_claim_is_charged_once_whatever_led_to_it(sql: Sql, lanes: int) -> None:
    book = Book(sql, lanes)
    first = _one(sql, max_attempts=3)
    job = first["job"]["id"]
    book.check(1)
    sql.fail(first, retry_in_seconds=60)
    advance_clock(sql.connection, timedelta(minutes=1))
    assert ask(sql)["claims"][0]["job"]["id"] == job
    book.check(1)
    sql.lapse(job)
    assert ask(sql)["claims"][0]["job"]["id"] == job
    book.check(1)
    sql.lapse(job)
    sql.call("reap")
    assert sql.state(job) == "failed"
    assert sql.call("retry", job_id=job)["status"] == "ok"
    assert sql.call("claim_job", job_id=job)["status"] == "ok"
    book.check(1)
    sql.lapse(job)
    taken = sql.call("claim_job", job_id=job)["claim"]
    book.check(1)
    sql.release(taken)
    (again,) = ask(sql)["claims"]
    book.check(1)
    sql.call("cancel", job_id=job)
    sql.fail(again)
    sql.call("retry", job_id=job)
    (again,) = ask(sql)["claims"]
    book.check(1)
    sql.enqueue_many([{"queue": "q"}] * 4)
    assert len(sql.claim(n=9, finished=[completed(again)])["claims"]) == 4
    book.check(4)
    assert sql.job(job)["attempts_total"] == 7
    assert sql.call("budget_show", queue="q")["charged_for_retries"] == 6


@pytest.mark.parametrize("lanes", [1, 4])
def test_nothing_gives_a_charge_back(sql: Sql, lanes: int) -> None:
    book = Book(sql, lanes)

    def lapsed(claim: Json) -> object:
        sql.lapse(claim["job"]["id"])
        return sql.call("reap")

    endings: list[Callable[[Json], object]] = [
        sql.complete,
        lambda claim: sql.fail(claim, retry=False),
        lambda claim: sql.fail(claim, retry_in_seconds=3_600),
        sql.release,
        lambda claim: sql.release(claim, started=False),
        lambda claim: sql.release(claim, reason="quota", not_before=NOON + timedelta(hours=1)),
        lapsed,
        lambda claim: (sql.call("cancel", job_id=claim["job"]["id"]), sql.fail(claim)),
        lambda claim: (sql.call("cancel", job_id=claim["job"]["id"]), lapsed(claim)),
        lambda claim: (sql.complete(claim), sql.call("prune", job_days=0, keep_jobs=0)),
    ]
    for end in endings:
        claim = _one(sql)
        end(claim)
        book.check(1)
    changes: list[tuple[str, Json]] = [
        ("patch_admission_policy", {"patch": {"max_in_flight": 3}}),
        ("pause_queue", {}),
        ("resume_queue", {}),
        ("set_admission_policy", {"policy": {"limits": [window(5), window(500, "hour")], "lanes": 7 - lanes}}),
        ("set_admission_policy", {"policy": {"limits": [window(1_000), window(500, "hour")], "lanes": lanes}}),
    ]
    for verb, arguments in changes:
        sql.call(verb, queue="q", **arguments)
        book.check(0)
    sql.call("clear_admission_policy", queue="q")
    govern(sql, "q", window(1_000), window(500, "hour"))
    book.check(0)
    claim = _one(sql)
    sql.do("delete from sluicegate.job where id = %s", claim["job"]["id"])
    assert used(sql) == opened(sql) == book.charged + 1


@pytest.mark.parametrize("lanes", [1, 4])
def test_what_starts_nothing_is_not_charged(sql: Sql, another: OpenSql, lanes: int) -> None:
    book = Book(sql, lanes)
    job = sql.enqueue(dedup_key="once")
    first = sql.claim(request_id="r")
    book.check(1)
    assert sql.enqueue(dedup_key="once") == job
    assert [
        entry["created"] for entry in sql.call("enqueue_many", jobs=[{"queue": "q", "dedup_key": "once"}] * 3)["jobs"]
    ] == [False] * 3
    assert (first["replayed"], sql.claim(request_id="r")["replayed"]) == (False, True)
    assert sql.call("claim_job", job_id=job)["status"] == "conflict"
    assert sql.call("claim_job", job_id=10**9)["status"] == "not_found"
    assert sql.claim()["empty"] is True
    sql.heartbeat(first["claims"][0])
    book.check(0)
    by_id = sql.enqueue()
    assert sql.call("claim_job", job_id=by_id, request_id="i")["replayed"] is False
    assert sql.call("claim_job", job_id=by_id, request_id="i")["replayed"] is True
    book.check(1)
    other = another()
    sql.enqueue()
    for leave in ("rollback", "select 1/0"):
        other.do("begin")
        assert len(other.take()) == 1
        with contextlib.suppress(psycopg.Error):
            other.do(leave)
        other.do("rollback")
        book.check(0)
    with pytest.raises(psycopg.Error):
        sql.claim(n=0)
    other.do("begin isolation level repeatable read")
    with pytest.raises(psycopg.Error):
        other.claim()
    other.do("rollback")
    sql.call("pause_queue", queue="q")
    assert ask(sql)["deferred"][0]["reason"] == "paused"
    assert sql.call("claim_job", job_id=sql.enqueue())["status"] == "deferred"
    book.check(0)


def test_a_release_refunds_nothing(sql: Sql) -> None:
    govern(sql, "q", window(2))
    sql.enqueue_many({"queue": "q"} for _ in range(2))
    sql.release(sql.take_one(), started=False)
    sql.release(sql.take_one())
    assert used(sql) == 2
    assert ask(sql)["deferred"][0]["reason"] == "window_exhausted"


def test_a_claim_that_is_rolled_back_charges_nothing(sql: Sql) -> None:
    govern(sql, "q", window(5))
    sql.enqueue()
    with sql.transaction():
        sql.take_one()
    assert used(sql) == opened(sql) == 0


@pytest.mark.parametrize("lanes", [1, 4])
def test_polls_of_an_exhausted_queue_write_nothing(sql: Sql, lanes: int) -> None:
    govern(sql, "q", window(3), lanes=lanes)
    jobs = sql.enqueue_many({"queue": "q"} for _ in range(6))
    while not sql.claim(n=6)["deferred"]:
        assert opened(sql) <= 3
    before = rows_and_locks(sql)
    for number in range(50):
        assert sql.claim(n=1 + number % 7)["deferred"][0]["pending"] == 3
    assert rows_and_locks(sql) == before
    assert sql.call("claim_job", job_id=jobs[5])["status"] == "deferred"
    assert sql.job(jobs[5])["attempt"] == 0
    assert sql.one("select sum(refused) from sluicegate.refusal") >= 1


def test_polls_of_an_empty_governed_queue_write_nothing(sql: Sql) -> None:
    govern(sql, "q", window(3))
    before = rows_and_locks(sql)
    assert all(sql.claim()["empty"] for _ in range(50))
    assert rows_and_locks(sql) == before


def test_an_ungoverned_queue_has_no_lane_and_tells_nothing_of_admission(sql: Sql) -> None:
    sql.enqueue()
    claim = sql.take_one()
    assert claim["admission"] is None
    assert sql.one("select count(*) from sluicegate.lane") == 0
    assert sql.job(claim["job"]["id"])["lane"] is None


@pytest.mark.usefixtures("midweek")  # in a day's last hour both windows end together
def test_a_claim_is_told_what_is_left_in_every_window(sql: Sql) -> None:
    govern(sql, "q", window(10), window(3, "hour"), max_in_flight=4)
    sql.enqueue_many({"queue": "q"} for _ in range(2))
    sql.take_one()
    told = sql.take_one()["admission"]
    assert (told["max_in_flight"], told["in_flight"]) == (4, 2)
    assert (told["max_claims_per_window"], told["used"], told["remaining"]) == (3, 2, 1)
    assert [(limit["period"], limit["used"], limit["remaining"]) for limit in told["limits"]] == [
        ("hour", 2, 1),
        ("day", 2, 8),
    ]


def test_a_repeated_claim_is_told_what_is_left_too_and_held_whatever_befalls_the_policy(sql: Sql) -> None:
    govern(sql, "q", window(5))
    sql.enqueue_many({"queue": "q"} for _ in range(2))
    first, again = (sql.claim(request_id="r")["claims"][0]["admission"] for _ in range(2))
    assert first == again
    assert first["used"] == 1
    by_id = [sql.call("claim_job", job_id=2, request_id="s")["claim"]["admission"] for _ in range(2)]
    assert by_id[0] == by_id[1]
    sql.do("alter table sluicegate.policy rename to elsewhere")
    (claim,) = sql.claim(request_id="r")["claims"]
    assert claim["admission"] is None
    assert sql.complete(claim)["status"] == "ok"


def test_finishes_in_the_same_call_make_room_before_the_claim(sql: Sql) -> None:
    govern(sql, max_in_flight=2, lanes=2)
    sql.enqueue_many({"queue": "q"} for _ in range(5))
    first = ask(sql, n=5)["claims"]
    assert len(first) == 2
    second = sql.claim(n=5, finished=[completed(first[0]), failed(first[1])])
    assert len(second["claims"]) == 2
    check_ledger(sql)


def test_a_lapsed_claim_is_taken_over_at_a_full_cap(sql: Sql) -> None:
    govern(sql, max_in_flight=2, lanes=2)
    sql.enqueue_many({"queue": "q"} for _ in range(3))
    held = ask(sql, n=2)["claims"]
    for by_id in (False, True):
        lapsed = held[by_id]["job"]["id"]
        sql.lapse(lapsed)
        taken = sql.call("claim_job", job_id=lapsed)["claim"] if by_id else ask(sql)["claims"][0]
        assert taken["job"]["id"] == lapsed
        assert ask(sql)["deferred"][0]["reason"] == "in_flight_full"
    assert gates(sql)["in_flight"]["used"] == 2
    check_ledger(sql)


def test_a_fresh_job_is_not_started_in_the_place_of_a_lapsed_one(sql: Sql) -> None:
    govern(sql, max_in_flight=1)
    first, second = sql.enqueue_many({"queue": "q"} for _ in range(2))
    sql.take_one()
    sql.lapse(first)
    answer = sql.call("claim_job", job_id=second)
    assert (answer["status"], answer["deferred"]["reason"]) == ("deferred", "in_flight_full")
    assert sql.take_one()["job"]["id"] == first


def test_a_lapsed_claim_that_nobody_may_take_over_frees_its_slot(sql: Sql) -> None:
    govern(sql, max_in_flight=1)
    spent, cancelled, waiting = (sql.enqueue(max_attempts=most) for most in (1, 5, 5))
    token = sql.take_one()
    sql.lapse(spent)
    other = sql.take_one()
    assert (other["job"]["id"], sql.state(spent)) == (cancelled, "failed")
    assert sql.complete(token)["status"] == "conflict"
    sql.call("cancel", job_id=cancelled)
    sql.lapse(cancelled)
    assert sql.take_one()["job"]["id"] == waiting
    assert sql.state(cancelled) == "cancelled"


def test_a_spent_claim_frees_its_slot_for_a_claim_by_id(sql: Sql) -> None:
    govern(sql, max_in_flight=1)
    spent, waiting = (sql.enqueue(max_attempts=1) for _ in range(2))
    sql.take_one()
    sql.lapse(spent)
    assert sql.call("claim_job", job_id=waiting)["status"] == "ok"
    assert gates(sql)["in_flight"]["used"] == 1


def test_two_queues_of_a_like_name_have_budgets_of_their_own(sql: Sql, another: OpenSql) -> None:
    govern(sql, "a", window(1))
    govern(sql, "a-b", window(2))
    sql.enqueue_many({"queue": queue} for queue in ("a", "a-b", "a", "a-b", "a-b"))
    got = ask(sql, "a", "a-b", n=9)
    assert sorted(claim["job"]["queue"] for claim in got["claims"]) == ["a", "a-b", "a-b"]
    assert {entry["queue"] for entry in got["deferred"]} == {"a", "a-b"}


def test_a_replayed_claim_tells_what_the_first_one_told(sql: Sql) -> None:
    govern(sql, "q", window(10), max_in_flight=5)
    job = sql.enqueue_many({"queue": queue} for queue in ("q", "q", "free"))[0]
    first = sql.take("q", "free", n=3, request_id="r")
    again = sql.claim("q", "free", n=3, request_id="r")
    assert again["replayed"] is True
    told = {claim["job"]["id"]: claim["admission"] for claim in again["claims"]}
    assert told == {claim["job"]["id"]: claim["admission"] for claim in first}
    assert (told[job]["used"], told[job]["remaining"], told[job]["in_flight"]) == (2, 8, 2)
    sql.call("clear_admission_policy", queue="q")
    assert [claim["admission"] for claim in sql.take("q", "free", n=3, request_id="r")] == [None] * 3


def test_a_replayed_claim_of_one_job_tells_the_same(sql: Sql) -> None:
    govern(sql, "q", window(10))
    job = sql.enqueue()
    first = sql.call("claim_job", job_id=job, request_id="r")
    again = sql.call("claim_job", job_id=job, request_id="r")
    assert (again["replayed"], again["claim"]["admission"]) == (True, first["claim"]["admission"])
    assert again["claim"]["admission"]["used"] == 1


def test_a_claim_is_replayed_though_its_policy_cannot_be_read(sql: Sql) -> None:
    govern(sql, "q", window(10))
    job = sql.enqueue()
    sql.take_one(request_id="r")
    sql.do("alter table sluicegate.policy rename to elsewhere")
    assert [claim["job"]["id"] for claim in sql.take(request_id="r")] == [job]

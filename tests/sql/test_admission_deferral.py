"""What deferred work is told, what it keeps, and that a closed queue never stands in the way of another."""

import pytest

from tests.sql.budgets import ask, govern, window
from tests.sql.verbs import Sql, refused

pytestmark = pytest.mark.usefixtures("midweek")


def test_deferred_work_stays_as_it_was(sql: Sql) -> None:
    govern(sql, "q", window(1))
    _, job = sql.enqueue("q"), sql.enqueue("q", dedup_key="once", max_attempts=1)
    sql.take_one()
    before = sql.job(job)
    for _ in range(3):
        assert ask(sql)["deferred"]
        assert sql.call("claim_job", job_id=job)["status"] == "deferred"
        sql.call("reap")
    assert sql.job(job) == before
    assert sql.call("enqueue", queue="q", dedup_key="once")["created"] is False


def test_a_deferred_entry_names_every_limit_that_closed(sql: Sql) -> None:
    govern(sql, "q", window(2), window(2, "hour"), window(9, "week", weekday="Mon"), max_in_flight=2)
    sql.enqueue_many({"queue": "q"} for _ in range(3))
    ask(sql, n=2)
    (entry,) = ask(sql)["deferred"]
    assert (entry["queue"], entry["pending"], entry["reason"]) == ("q", 1, "window_exhausted")
    closed = {gate["period"] or gate["gate"]: gate for gate in entry["all"]}
    assert closed.keys() == {"hour", "day", "in_flight"}
    assert all((gate["used"], gate["limit"]) == (2, 2) for gate in closed.values())
    assert closed["hour"]["until"] <= closed["day"]["until"]
    assert entry["exact"] is False


def test_a_claim_by_id_in_a_closed_queue_is_deferred(sql: Sql) -> None:
    govern(sql, "q", window(1))
    job = sql.enqueue_many({"queue": "q"} for _ in range(2))[1]
    sql.take_one()
    answer = sql.call("claim_job", job_id=job)
    assert (answer["status"], answer["state"]) == ("deferred", "pending")
    assert answer["deferred"]["reason"] == "window_exhausted"
    assert answer["deferred"]["exact"] is True


def test_nothing_pending_is_plainly_empty(sql: Sql) -> None:
    govern(sql, "q", window(0), opened=False)
    answer = ask(sql)
    assert (answer["deferred"], answer["empty"]) == ([], True)


@pytest.mark.parametrize("n", [1, 5])
def test_an_exhausted_queue_with_the_oldest_job_starves_no_other(sql: Sql, n: int) -> None:
    govern(sql, "closed", window(1))
    sql.enqueue_many([{"queue": "closed", "priority": 0}] * 30 + [{"queue": "open"}] * 5)
    ask(sql, "closed")
    got = sql.claim("closed", "open", n=n)
    assert [claim["job"]["queue"] for claim in got["claims"]] == ["open"] * n
    got = sql.claim("closed", "open", n=10)
    assert len(got["claims"]) == 5 - n
    assert [entry["queue"] for entry in got["deferred"]] == ["closed"]


def test_a_queue_that_runs_out_midway_leaves_its_place_to_the_others(sql: Sql) -> None:
    govern(sql, "tight", window(2))
    govern(sql, "wide", window(100), lanes=4)
    sql.enqueue_many([{"queue": "tight", "priority": 0}] * 9 + [{"queue": "wide"}] * 4 + [{"queue": "free"}] * 4)
    got = sql.claim("tight", "wide", "free", n=10)
    queues = [claim["job"]["queue"] for claim in got["claims"]]
    assert (queues.count("tight"), queues.count("wide"), queues.count("free")) == (2, 4, 4)


def test_the_state_stands_in_status_and_in_what_explains_a_job(sql: Sql) -> None:
    govern(sql, "q", window(1))
    first, second, third = sql.enqueue_many({"queue": "q"} for _ in range(3))
    sql.take_one()
    (queue,) = sql.call("admission_status")["queues"]
    assert (queue["status"], queue["pending"]) == ("window_exhausted", 2)
    why = sql.call("explain", job_id=third)
    assert (why["waits_for"], why["position"], why["verdict"]["reason"]) == ("admission", 1, "window_exhausted")
    assert why["command"] == "sluicegate queue budget set --per-day 3 q"
    assert why["expected_at"] > why["verdict"]["next_eligible_at"]
    assert sql.call("explain", job_id=second)["expected_at"] == why["verdict"]["next_eligible_at"]
    assert sql.call("explain", job_id=first)["waits_for"] == "running"
    following = sql.call("next_jobs")["jobs"]
    assert [job["id"] for job in following] == [second, third]
    with refused(sql, "SG002", "queue"):
        sql.call("admission_status", queue="nowhere")


def test_a_rehearsal_says_what_a_policy_would_have_deferred(sql: Sql) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(5))
    for claim in sql.take(n=5):
        sql.complete(claim)
    (day,) = sql.call("rehearse", queue="q", policy={"limits": [window(2)]})["per_day"]
    assert (day["claims"], day["admitted"], day["deferred"]) == (5, 2, 3)
    assert sql.one("select count(*) from sluicegate.policy") == 0

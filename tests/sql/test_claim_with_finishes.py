"""Finishes that ride along with a claim: each is answered, and stands whatever becomes of the claim."""

from typing import Any

import psycopg
import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger, completed, failed, lease, released


def test_finishes_ride_along_and_are_answered_in_input_order(sql: Sql) -> None:
    for number in range(4):
        sql.enqueue(payload=number)
    claims = sql.take(n=4)
    response = sql.claim(
        finished=[
            failed(claims[3], "bad", retry_in_seconds=0),
            completed(claims[0], result={"ok": 1}, summary="fine"),
            released(claims[2], reason="quota", started=False),
        ],
        n=5,
    )
    ids = [claim["job"]["id"] for claim in claims]
    assert [(answer["job_id"], answer["status"], answer["state"]) for answer in response["finished"]] == [
        (ids[3], "ok", "pending"), (ids[0], "ok", "done"), (ids[2], "ok", "pending"),
    ]  # fmt: skip
    assert [claim["job"]["id"] for claim in response["claims"]] == [ids[2], ids[3]]
    check_ledger(sql)


@pytest.mark.parametrize(
    "request_",
    [
        {"queues": ["q"], "n": 0},
        {"queues": ["q"], "scope": "endpoint:nobody"},
        {"queues": ["q"], "scope": "endpoint:nobody", "request_id": "r"},
        {"queues": ["q"], "scope": "no scope", "request_id": "r"},
        {"queues": ["q"], "request_id": ""},
        {"queues": "q"},
        5,
        None,
    ],
    ids=str,
)
def test_a_finish_stands_whatever_is_wrong_with_the_claim_part(sql: Sql, request_: Any) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    answer = sql.call("claim", requests=[request_], finished=[completed(claim)])
    assert answer["finished"][0]["status"] == "ok"
    assert answer["responses"][0]["error"]["sqlstate"] in ("SG001", "SG002")
    assert sql.state(job) == "done"


def test_a_finish_stands_when_the_claim_part_breaks_in_the_middle(sql: Sql) -> None:
    done, waiting = sql.enqueue(), sql.enqueue("other")
    claim = sql.take_one()
    sql.do("create function public.broken() returns trigger language plpgsql as $$ begin raise 'disk on fire'; end $$")
    sql.do("create trigger broken before insert on sluicegate.attempt execute function public.broken()")
    answer = sql.call("claim", requests=[{"queues": ["other"]}], finished=[completed(claim)])
    assert answer["responses"][0]["error"]["message"] == "disk on fire"
    assert answer["responses"][0]["error"]["field"] is None
    assert (sql.state(done), sql.state(waiting)) == ("done", "pending")


def test_one_bad_finish_stops_no_other_and_each_is_answered(sql: Sql) -> None:
    jobs = [sql.enqueue() for _ in range(4)]
    claims = sql.take(n=4)
    bad: list[Any] = [
        5,
        None,
        {},
        {"job_id": "x", "lease_token": "t", "outcome": "completed"},
        {"job_id": 10**30, "lease_token": "t", "outcome": "completed"},
        {"job_id": 1.5, "lease_token": "t", "outcome": "completed"},
        {**completed(claims[1]), "outcome": "finished"},
        {**completed(claims[1]), "lease_token": None},
        {**failed(claims[1]), "retry_in_seconds": "soon"},
        {**failed(claims[1]), "retry_in_seconds": 10**400},
        {**failed(claims[1]), "retry": "maybe"},
        {**released(claims[1]), "not_before": "tomorrow"},
        {**released(claims[1]), "started": 0},
        {**completed(claims[1]), "result": "x" * 1_048_577},
        {**completed(claims[1]), "summary": 5},
        {**completed(claims[1]), "colour": "red"},
        {**completed(claims[1]), "scope": 5},
    ]
    want = [
        "finished", "finished", "job_id", "job_id", "job_id", "job_id", "outcome", "lease_token", "retry_in_seconds",
        "retry_in_seconds", "retry", "not_before", "started", "result", "summary", "colour", "scope",
    ]  # fmt: skip
    unknown = {"job_id": 999_999, "lease_token": "t", "outcome": "completed"}
    foreign = {**completed(claims[1]), "scope": "endpoint:nobody"}
    stale = {**completed(claims[2]), "lease_token": "stale"}
    answers = sql.claim("none", finished=[completed(claims[0]), *bad, unknown, foreign, stale, completed(claims[3])])[
        "finished"
    ]
    assert answers[0]["status"] == answers[-1]["status"] == "ok"
    assert [answer["field"] for answer in answers[1:-4]] == want
    assert {answer["status"] for answer in answers[1:-4]} == {"invalid_argument"}
    assert [answer["status"] for answer in answers[-4:-1]] == ["not_found", "not_found", "conflict"]
    assert all(answer["message"] for answer in answers[1:-1])
    assert [sql.state(job) for job in jobs] == ["done", "claimed", "claimed", "done"]
    check_ledger(sql)


def test_the_same_job_twice_in_one_batch_of_finishes_ends_once(sql: Sql) -> None:
    sql.enqueue()
    claim = sql.take_one()
    answers = sql.claim("none", finished=[completed(claim), completed(claim), failed(claim)])["finished"]
    assert [(answer["status"], answer["replayed"]) for answer in answers] == [
        ("ok", False), ("ok", True), ("conflict", False),
    ]  # fmt: skip
    check_ledger(sql)


def test_the_largest_claim_takes_a_thousand(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 1200)
    claims = sql.take(n=1000)
    assert len({claim["job"]["id"] for claim in claims}) == len({claim["lease_token"] for claim in claims}) == 1000
    answers = sql.claim(n=1000, finished=[completed(claim) for claim in claims])
    assert {answer["status"] for answer in answers["finished"]} == {"ok"}
    assert len(answers["claims"]) == 200
    check_ledger(sql)


def test_a_finish_that_another_transaction_holds_up_is_to_be_sent_again_and_stops_no_other(
    sql: Sql, another: OpenSql
) -> None:
    sql.do("alter function sluicegate.claim set lock_timeout = '200ms'")
    jobs = [sql.enqueue() for _ in range(3)]
    claims = sql.take(n=3)
    other = another()
    with other.transaction():
        other.do("select from sluicegate.job where id = %s for update", jobs[1])
        answers = sql.claim("none", finished=[completed(claim) for claim in claims])["finished"]
    assert [answer["status"] for answer in answers] == ["ok", "unavailable", "ok"]
    assert answers[1]["message"]
    assert [sql.state(job) for job in jobs] == ["done", "claimed", "done"]
    assert sql.claim("none", finished=[completed(claims[1])])["finished"][0]["status"] == "ok"


def test_a_request_that_is_still_running_elsewhere_times_out_and_the_finishes_stand(sql: Sql, another: OpenSql) -> None:
    sql.do("alter function sluicegate.claim set lock_timeout = '200ms'")
    sql.enqueue()
    claim = sql.take_one()
    other = another()
    with other.transaction():
        other.claim("none-here", request_id="slow")
        other.claim("none-here", request_id="slower")
        requests = [{"queues": ["q"], "request_id": name} for name in ("slow", "free", "slower")]
        answer = sql.call("claim", requests=requests, finished=[completed(claim)])
    assert answer["finished"][0]["status"] == "ok"
    states = [response["error"] and response["error"]["sqlstate"] for response in answer["responses"]]
    assert states == ["55P03", None, "55P03"]
    assert lease(claim)["job_id"] == answer["finished"][0]["job_id"]


def test_a_single_request_raises_plainly_when_nothing_rides_along(sql: Sql) -> None:
    with pytest.raises(psycopg.Error) as caught:
        sql.claim(n=0)
    assert caught.value.sqlstate == "SG001"

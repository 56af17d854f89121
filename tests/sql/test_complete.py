"""Complete: done, with a result, once; and what all three finishes share."""

from datetime import datetime
from typing import Any

import psycopg
import pytest

from tests.sql.verbs import Json, Sql, check_ledger, completed, each, lease, refused


def test_a_completed_job_keeps_its_result_and_lets_go_of_everything_else(sql: Sql) -> None:
    job = sql.enqueue()
    sql.fail(sql.take_one(), "first try", retry_in_seconds=0)
    answer = sql.complete(sql.take_one(), result={"a": [1]}, summary="all good")
    row = sql.job(job)
    assert answer == {
        "job_id": job, "status": "ok", "replayed": False, "state": "done", "dead_letter": False,
        "run_at": answer["run_at"], "attempt": 2, "max_attempts": 5, "message": None,
    }  # fmt: skip
    assert (row["state"], row["result"], row["error"], row["worker"]) == ("done", {"a": [1]}, None, None)
    assert row["lease_expires_at"] is row["lease_token_hash"] is None
    assert row["finished_at"] >= row["claimed_at"]
    assert sql.ends(job) == [("failed", "retry_scheduled"), ("completed", "done")]
    assert sql.attempts(job)[1]["summary"] == "all good"


def test_a_result_may_be_any_json_or_nothing(sql: Sql) -> None:
    for result in each(0, "", False, [], {}, "text", [None], 1.5):
        job = sql.enqueue()
        sql.complete(sql.take_one(), result=result)
        assert sql.job(job)["result"] == result
    for options in ({}, {"result": None}):
        job = sql.enqueue()
        sql.complete(sql.take_one(), **options)
        assert sql.job(job)["result"] is None


def test_what_nearly_all_say_takes_the_short_way_and_ends_a_job_as_the_long_one_does(sql: Sql) -> None:
    def end(**fields: Any) -> list[Json]:
        job = sql.enqueue()
        sql.fail(sql.take_one(), "first try", retry_in_seconds=0)
        item = completed(sql.take_one(), result={"a": 1}, **fields)
        sql.call("cancel", job_id=job)
        (answer,) = sql.claim("none", finished=[item])["finished"]
        found = [answer, sql.job(job), sql.attempts(job)[1]]
        own = ("id", "job_id", "attempt_id", "run_at", "lease_token_hash")
        return [{k: isinstance(v, datetime) or v for k, v in row.items() if k not in own} for row in found]

    assert end() == end(scope=None)
    check_ledger(sql)
    long = "if p_items #>> '{0,outcome}' = 'completed' then raise exception 'the long way'; end if;"
    sql.replace("finish_jobs", ("perform sluicegate.check_finish(p_items);", long))
    assert end()[0]["status"] == "ok"
    with pytest.raises(psycopg.errors.RaiseException, match="the long way"):
        end(scope=None)


def test_completing_twice_with_one_token_is_fine_and_says_so(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    sql.complete(claim, result=1)
    before = sql.contents()
    again = sql.complete(claim, result=2)
    assert (again["status"], again["replayed"], again["state"]) == ("ok", True, "done")
    assert sql.contents() == before
    assert sql.job(job)["result"] == 1


def test_another_outcome_with_a_spent_token_is_a_conflict(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    sql.complete(claim)
    for again in (sql.fail(claim), sql.release(claim)):
        assert (again["status"], again["replayed"], again["state"]) == ("conflict", False, "done")
        assert "completed" in again["message"]
    assert sql.late_calls(job) == {"failed": 1, "released": 1}
    assert sql.ends(job) == [("completed", "done")]


def test_a_lease_that_has_merely_lapsed_still_completes(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    sql.lapse(job)
    assert sql.complete(claim)["status"] == "ok"
    check_ledger(sql)


@pytest.mark.parametrize("taker", ["claim", "claim_job", "reap", "reap at the cap", "replay"])
def test_a_superseded_token_is_a_conflict_on_every_verb_and_is_recorded(sql: Sql, taker: str) -> None:
    job = sql.enqueue(max_attempts=1 if "cap" in taker else 5)
    old = sql.take_one(request_id="r")
    if taker == "replay":
        sql.take_one(request_id="r")
    else:
        sql.lapse(job)
        if taker.startswith("reap"):
            sql.call("reap")
        elif taker == "claim":
            sql.take_one()
        else:
            sql.call("claim_job", job_id=job)
    before = sql.job(job)
    for _ in range(2):
        for answer in (sql.complete(old), sql.fail(old), sql.release(old), sql.heartbeat(old)):
            assert answer["status"] == "conflict"
            assert answer["message"]
    assert sql.late_calls(job) == {"completed": 2, "failed": 2, "released": 2, "heartbeat": 2}
    assert sql.job(job) == before
    check_ledger(sql)


def test_a_wrong_token_is_a_conflict_and_recorded_without_growing_for_ever(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    for number in range(60):
        for token in (f"guess {number}", ""):
            assert sql.complete({**claim, "lease_token": token})["status"] == "conflict"
    assert sql.one("select count(*) from sluicegate.late_call") == 50
    assert sql.late_calls(job)["completed"] == 60 + 49
    assert sql.complete(claim)["status"] == "ok"


def test_a_job_that_was_never_claimed_cannot_be_finished(sql: Sql) -> None:
    job = sql.enqueue()
    for verb in ("complete", "fail", "release", "heartbeat"):
        options = {"error": "e"} if verb == "fail" else {}
        answer = sql.call(verb, job_id=job, lease_token="", **options)
        assert answer["status"] == "conflict"
    assert sql.state(job) == "pending"


def test_a_job_of_another_scope_is_answered_byte_for_byte_like_an_unknown_one(sql: Sql) -> None:
    sql.do("insert into sluicegate.endpoint (owner_id, slug) select id, 'other' from sluicegate.owner")
    foreign = sql.enqueue(scope="endpoint:other")
    claim = sql.take_one(scope="endpoint:other")
    token = claim["lease_token"]
    for call in ("complete(%s, %s)", "fail(%s, %s, 'e')", "release(%s, %s)", "heartbeat(%s, %s) - 'server_time'"):
        query = f"select replace((sluicegate.{call})::text, %s, 'N')"
        assert sql.one(query, foreign, token, str(foreign)) == sql.one(query, 424_242, token, "424242")
    for call in ("cancel(%s)", "retry(%s)", "get_job(%s)"):
        query = f"select replace((sluicegate.{call})::text, %s, 'N')"
        assert sql.one(query, foreign, str(foreign)) == sql.one(query, 424_242, "424242")
    assert sql.one("select count(*) from sluicegate.late_call") == 0
    assert sql.complete(claim, scope="endpoint:other")["status"] == "ok"


BAD: list[tuple[str, str, dict[str, Any]]] = [
    ("complete", "result", {"result": "x" * 1_048_577}),
    ("complete", "summary", {"summary": "x" * 2049}),
    ("complete", "job_id", {"job_id": None}),
    ("complete", "job_id", {"job_id": -1}),
    ("complete", "lease_token", {"lease_token": None}),
    ("complete", "scope", {"scope": "x"}),
    ("fail", "error", {"error": "é" * 32_769}),
    ("fail", "retry_in_seconds", {"retry_in_seconds": -0.001}),
    ("fail", "retry_in_seconds", {"retry_in_seconds": 31_536_001.0}),
    ("fail", "retry_in_seconds", {"retry_in_seconds": float("nan")}),
    ("fail", "retry_in_seconds", {"retry_in_seconds": float("inf")}),
    ("fail", "retry_in_seconds", {"retry_in_seconds": float("-inf")}),
    ("fail", "lease_token", {"lease_token": None}),
    ("release", "reason", {"reason": "x" * 65_537}),
    ("release", "job_id", {"job_id": None}),
    ("heartbeat", "lease_seconds", {"lease_seconds": 0}),
    ("heartbeat", "lease_seconds", {"lease_seconds": -5}),
    ("heartbeat", "lease_seconds", {"lease_seconds": 86_401}),
    ("heartbeat", "note", {"note": "x" * 513}),
    ("heartbeat", "job_id", {"job_id": None}),
    ("heartbeat", "lease_token", {"lease_token": None}),
]


def test_bad_input_to_a_finish_or_heartbeat_is_named_and_changes_nothing(sql: Sql) -> None:
    sql.enqueue()
    claim = sql.take_one()
    for verb, field, options in BAD:
        needed = {"error": "e"} if verb == "fail" else {}
        with refused(sql, "SG001", field):
            sql.call(verb, **{**lease(claim), **needed, **options})
    for not_before in ("infinity", "-infinity", "10000-01-01 00:00Z", "0044-03-15 00:00Z BC"):
        with refused(sql, "SG001", "not_before"):
            sql.one("select sluicegate.release(%s, %s, null, %s::timestamptz)", *lease(claim).values(), not_before)
    with refused(sql, "SG002", "scope"):
        sql.complete(claim, scope="endpoint:nobody")
    assert sql.complete(claim)["status"] == "ok"


def test_the_largest_result_and_error_fit(sql: Sql) -> None:
    done, failed = sql.enqueue(), sql.enqueue()
    first, second = sql.take(n=2)
    # Two more are the quotation marks: what counts is the JSON.
    assert sql.complete(first, result="x" * 1_048_574)["status"] == "ok"
    assert sql.fail(second, "x" * 65_536, retry=False)["status"] == "ok"
    assert len(sql.job(done)["result"]) == 1_048_574
    assert len(sql.job(failed)["error"]) == 65_536

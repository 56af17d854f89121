"""Claiming one job by its id."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger, in_background, refused, wait_blocked


def claim_job(sql: Sql, job_id: int | None, **options: Any) -> dict[str, Any]:
    answer: dict[str, Any] = sql.call("claim_job", job_id=job_id, **options)
    return answer


def test_a_pending_job_is_claimed_like_by_any_claim(sql: Sql) -> None:
    sql.enqueue(priority=-5)
    job = sql.enqueue()
    answer = claim_job(sql, job, worker="w", lease_seconds=60)
    assert (answer["status"], answer["replayed"]) == ("ok", False)
    assert (answer["claim"]["job"]["id"], answer["claim"]["job"]["attempt"]) == (job, 1)
    assert set(answer["claim"]) == set(sql.take_one())
    assert sql.complete(answer["claim"])["status"] == "ok"
    check_ledger(sql)


def test_a_scheduled_job_can_be_claimed_once_it_is_due(sql: Sql) -> None:
    job = sql.enqueue(run_at=datetime.now(UTC) + timedelta(hours=1))
    early = claim_job(sql, job)
    assert (early["status"], early["state"]) == ("conflict", "scheduled")
    assert "scheduled for" in early["message"]
    sql.do("update sluicegate.job set run_at = clock_timestamp()")
    assert claim_job(sql, job)["status"] == "ok"


def test_a_held_or_finished_job_is_a_conflict_that_says_why_and_changes_nothing(sql: Sql) -> None:
    held, done, dead, gone = (sql.enqueue(max_attempts=1) for _ in range(4))
    sql.complete(claim_job(sql, done)["claim"])
    sql.fail(claim_job(sql, dead)["claim"])
    sql.call("cancel", job_id=gone)
    claim_job(sql, held)
    before = sql.contents()
    for job, state in ((held, "claimed"), (done, "done"), (dead, "failed"), (gone, "cancelled")):
        answer = claim_job(sql, job)
        assert (answer["status"], answer["state"]) == ("conflict", state)
        assert answer["message"]
    assert sql.contents() == before


def test_a_lapsed_job_is_taken_over_and_its_old_token_dies(sql: Sql) -> None:
    job = sql.enqueue()
    first = claim_job(sql, job)["claim"]
    sql.lapse(job)
    second = claim_job(sql, job)["claim"]
    assert sql.ends(job) == [("lease_expired", "requeued"), (None, None)]
    assert sql.fail(first)["status"] == "conflict"
    assert sql.complete(second)["status"] == "ok"


def test_a_lapsed_job_at_its_cap_or_cancelled_is_ended_instead(sql: Sql) -> None:
    spent, cancelled = sql.enqueue(max_attempts=1), sql.enqueue()
    for job in (spent, cancelled):
        claim_job(sql, job)
    sql.call("cancel", job_id=cancelled)
    sql.lapse(spent, cancelled)
    assert claim_job(sql, spent)["state"] == "failed"
    assert claim_job(sql, cancelled)["state"] == "cancelled"
    assert sql.ends(spent) == [("reaped", "dead_lettered")]
    assert sql.ends(cancelled) == [("reaped", "cancelled")]
    check_ledger(sql)


def test_a_job_of_another_scope_is_answered_byte_for_byte_like_an_unknown_one(sql: Sql) -> None:
    sql.do("insert into sluicegate.endpoint (owner_id, slug) select id, 'other' from sluicegate.owner")
    foreign = sql.enqueue(scope="endpoint:other")
    query = "select replace(sluicegate.claim_job(%s)::text, %s, 'N')"
    assert sql.one(query, foreign, str(foreign)) == sql.one(query, 424_242, "424242")
    assert claim_job(sql, None)["status"] == "not_found"
    assert claim_job(sql, foreign, scope="endpoint:other")["status"] == "ok"


def test_bad_input_is_named_and_changes_nothing(sql: Sql) -> None:
    job = sql.enqueue()
    for field, options in (
        ("lease_seconds", {"lease_seconds": 0}),
        ("lease_seconds", {"lease_seconds": 86_401}),
        ("worker", {"worker": "w" * 129}),
        ("request_id", {"request_id": ""}),
        ("request_id", {"request_id": "é" * 65}),
        ("scope", {"scope": "nobody"}),
    ):
        with refused(sql, "SG001", field):
            claim_job(sql, job, **options)
    with refused(sql, "SG002", "scope"):
        claim_job(sql, job, scope="team:nobody")


def test_it_waits_for_a_peer_that_holds_the_row_and_sees_what_the_peer_did(sql: Sql, another: OpenSql) -> None:
    job = sql.enqueue()
    peer, second = another(), another()
    with peer.transaction():
        peer.take_one()
        waiting = in_background(lambda: claim_job(second, job))
        wait_blocked(sql, second.pid, by=peer.pid)
        peer.commit()
    assert waiting.result(30)["status"] == "conflict"
    sql.lapse(job)
    with peer.transaction():
        claim_job(peer, job)
        waiting = in_background(lambda: claim_job(second, job))
        wait_blocked(sql, second.pid, by=peer.pid)
    assert waiting.result(30)["status"] == "ok"
    check_ledger(sql)


def test_it_does_not_wait_for_ever(sql: Sql, another: OpenSql) -> None:
    job = sql.enqueue()
    sql.do("alter function sluicegate.claim_job set lock_timeout = '100ms'")
    peer = another()
    with peer.transaction():
        peer.take_one()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            claim_job(sql, job)


def test_a_repeated_request_id_gives_the_same_claim_with_a_new_token(sql: Sql) -> None:
    job = sql.enqueue()
    first = claim_job(sql, job, request_id="r", lease_seconds=60)
    again = claim_job(sql, job, request_id="r", lease_seconds=60)
    assert (again["status"], again["replayed"]) == ("ok", True)
    assert again["claim"]["attempt_id"] == first["claim"]["attempt_id"]
    assert sql.heartbeat(first["claim"])["status"] == "conflict"
    assert sql.complete(again["claim"])["status"] == "ok"
    ended = claim_job(sql, job, request_id="r", lease_seconds=60)
    assert (ended["status"], ended["state"]) == ("conflict", "done")
    assert len(sql.attempts(job)) == 1


def test_a_repeated_request_id_does_not_claim_the_job_anew_after_a_release(sql: Sql) -> None:
    job = sql.enqueue()
    sql.release(claim_job(sql, job, request_id="r")["claim"])
    assert claim_job(sql, job, request_id="r")["status"] == "conflict"
    assert sql.state(job) == "pending"
    assert claim_job(sql, job)["status"] == "ok"


def test_a_request_id_is_bound_to_what_it_was_used_for(sql: Sql) -> None:
    job, other = sql.enqueue(), sql.enqueue()
    claim_job(sql, job, request_id="r")
    with refused(sql, "SG003", "request_id"):
        claim_job(sql, other, request_id="r")
    with refused(sql, "SG003", "request_id"):
        claim_job(sql, job, request_id="r", lease_seconds=7)
    with refused(sql, "SG003", "request_id"):
        sql.claim(request_id="r")
    with refused(sql, "SG003", "request_id"):
        sql.enqueue(request_id="r")


def test_a_conflict_is_not_remembered_under_the_request_id(sql: Sql) -> None:
    job = sql.enqueue(run_at=datetime.now(UTC) + timedelta(hours=1))
    assert claim_job(sql, job, request_id="r")["status"] == "conflict"
    sql.do("update sluicegate.job set run_at = clock_timestamp()")
    assert claim_job(sql, job, request_id="r")["status"] == "ok"

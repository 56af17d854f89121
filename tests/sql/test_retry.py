"""Retry now: pending at once, its counter at zero, its record kept."""

from datetime import UTC, datetime, timedelta

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger, in_background, refused, wait_blocked


def test_a_dead_letter_starts_over_with_its_record_kept(sql: Sql) -> None:
    job = sql.enqueue(max_attempts=1)
    sql.fail(sql.take_one(), "first life")
    answer = sql.call("retry", job_id=job)
    row = sql.job(job)
    assert (answer["job_id"], answer["status"], answer["state"], answer["message"]) == (job, "ok", "pending", None)
    assert (row["state"], row["attempt"], row["attempts_total"]) == ("pending", 0, 1)
    assert row["result"] is row["error"] is row["finished_at"] is None
    claim = sql.take_one()
    assert (claim["job"]["attempt"], claim["attempt_seq"]) == (1, 2)
    assert [prior["error"] for prior in claim["prior_attempts"]] == ["first life"]
    check_ledger(sql)


def test_cancelled_and_waiting_jobs_can_be_retried_too(sql: Sql) -> None:
    cancelled, waiting, future = sql.enqueue(), sql.enqueue(), sql.enqueue(run_at=datetime.now(UTC) + timedelta(days=1))
    sql.call("cancel", job_id=cancelled)
    sql.fail(sql.take_one())
    assert sql.state(waiting) == "scheduled"
    for job in (cancelled, waiting, future):
        assert sql.call("retry", job_id=job)["status"] == "ok"
        assert sql.job(job)["cancel_requested_at"] is None
    assert {claim["job"]["id"] for claim in sql.take(n=5)} == {cancelled, waiting, future}


def test_pending_claimed_and_done_jobs_are_a_conflict(sql: Sql) -> None:
    done, claimed, pending = (sql.enqueue() for _ in range(3))
    first, _ = sql.take(n=2)
    sql.complete(first)
    before = sql.contents()
    for job, state in ((pending, "pending"), (claimed, "claimed"), (done, "done")):
        answer = sql.call("retry", job_id=job)
        assert (answer["status"], answer["state"]) == ("conflict", state)
        assert answer["message"]
    assert sql.contents() == before


def test_the_conflict_over_a_dedup_key_names_the_live_job_that_has_it(sql: Sql) -> None:
    old = sql.enqueue(dedup_key="k", max_attempts=1)
    sql.fail(sql.take_one())
    new = sql.enqueue("other", dedup_key="k")
    answer = sql.call("retry", job_id=old)
    assert (answer["status"], answer["state"], answer["conflicting_job_id"]) == ("conflict", "failed", new)
    assert str(new) in answer["message"]
    assert sql.state(old) == "failed"
    sql.call("cancel", job_id=new)
    assert sql.call("retry", job_id=old)["status"] == "ok"
    assert sql.call("retry", job_id=new)["conflicting_job_id"] == old


def test_a_retry_waits_for_an_enqueue_of_its_key_and_then_yields_to_it(sql: Sql, another: OpenSql) -> None:
    old = sql.enqueue(dedup_key="k", max_attempts=1)
    sql.fail(sql.take_one())
    producer, retrier = another(), another()
    with producer.transaction():
        new = producer.enqueue(dedup_key="k")
        waiting = in_background(lambda: retrier.call("retry", job_id=old))
        wait_blocked(sql, retrier.pid, by=producer.pid)
        producer.commit()
    answer = waiting.result(30)
    assert (answer["status"], answer["conflicting_job_id"]) == ("conflict", new)


def test_a_retry_that_waited_for_an_enqueue_that_was_rolled_back_goes_through(sql: Sql, another: OpenSql) -> None:
    old = sql.enqueue(dedup_key="k", max_attempts=1)
    sql.fail(sql.take_one())
    producer, retrier = another(), another()
    with producer.transaction():
        producer.enqueue(dedup_key="k")
        waiting = in_background(lambda: retrier.call("retry", job_id=old))
        wait_blocked(sql, retrier.pid, by=producer.pid)
    assert waiting.result(30)["status"] == "ok"


def test_an_enqueue_waits_for_a_retry_that_takes_the_key(sql: Sql, another: OpenSql) -> None:
    old = sql.enqueue(dedup_key="k", max_attempts=1)
    sql.fail(sql.take_one())
    producer, retrier = another(), another()
    with retrier.transaction():
        assert retrier.call("retry", job_id=old)["status"] == "ok"
        waiting = in_background(lambda: producer.call("enqueue", queue="q", dedup_key="k"))
        wait_blocked(sql, producer.pid, by=retrier.pid)
        retrier.commit()
    assert waiting.result(30) == {"id": old, "created": False, "state": "pending", "queue": "q"}


def test_a_job_whose_key_was_taken_and_freed_meanwhile_is_retried(sql: Sql, another: OpenSql) -> None:
    old = sql.enqueue(dedup_key="k", max_attempts=1)
    sql.fail(sql.take_one())
    new = sql.enqueue(dedup_key="k")
    # The job in the way ends after the update has run into it and before it is looked up.
    ender, retrier = another(), another()
    ender.do("select pg_advisory_lock(1)")
    sql.replace(
        "retry", ("when unique_violation then\n", "when unique_violation then\n perform pg_advisory_lock_shared(1);\n")
    )
    waiting = in_background(lambda: retrier.call("retry", job_id=old))
    wait_blocked(sql, retrier.pid, by=ender.pid)
    ender.call("cancel", job_id=new)
    ender.do("select pg_advisory_unlock(1)")
    assert waiting.result(30)["status"] == "ok"
    assert (sql.state(old), sql.state(new)) == ("pending", "cancelled")


def test_an_unknown_job_is_not_found(sql: Sql) -> None:
    for job in (1, 0, -1, 2**63 - 1, None):
        answer = sql.one("select sluicegate.retry(%s::bigint)", job)
        assert (answer["status"], answer["job_id"]) == ("not_found", job)
    with refused(sql, "SG001", "scope"):
        sql.call("retry", job_id=1, scope="")

"""Fail: a retry after its backoff, or a dead letter."""

from datetime import timedelta
from typing import Any

from tests.sql.verbs import Sql, check_ledger


def delay(sql: Sql, job_id: int) -> float:
    """Seconds between the end of the last attempt and the job's next run."""
    row = sql.job(job_id)
    waited: timedelta = row["run_at"] - sql.attempts(job_id)[-1]["ended_at"]
    return waited.total_seconds()


def test_a_failed_attempt_waits_thirty_seconds_doubling_to_fifteen_minutes_with_jitter(sql: Sql) -> None:
    job = sql.enqueue(max_attempts=1000)
    waits = []
    for number, nominal in enumerate((30, 60, 120, 240, 480, 900, 900, 900)):
        answer = sql.fail(sql.take_one(), f"error {number}")
        assert (answer["state"], answer["dead_letter"], answer["attempt"]) == ("scheduled", False, number + 1)
        waits.append(delay(sql, job) / nominal)
        sql.do("update sluicegate.job set run_at = clock_timestamp()")
    assert all(0.9 <= wait <= 1.1 for wait in waits)
    assert len(set(waits)) == len(waits)
    assert {attempt["outcome"] for attempt in sql.attempts(job)} == {"failed"}


def test_a_job_may_have_its_own_backoff(sql: Sql) -> None:
    for backoff, nominal in (
        ({"base_seconds": 100, "max_seconds": 150}, (100, 150, 150)),
        ({"base_seconds": 0}, (0, 0, 0)),
        ({"max_seconds": 10}, (10, 10, 10)),
        ({"base_seconds": 2_592_000}, (2_592_000,) * 3),
        ({"base_seconds": 0.5, "max_seconds": 2_592_000}, (0.5, 1, 2)),
    ):
        job = sql.enqueue(backoff=backoff)
        for want in nominal:
            sql.fail(sql.take_one())
            assert want * 0.9 <= delay(sql, job) <= want * 1.1
            sql.do("update sluicegate.job set run_at = clock_timestamp() where id = %s", job)
        sql.call("cancel", job_id=job)


def test_a_fail_may_name_its_own_delay_without_jitter(sql: Sql) -> None:
    job = sql.enqueue()
    for seconds in (0.25, 3600.0, 31_536_000.0):
        sql.fail(sql.take_one(), retry_in_seconds=seconds)
        assert delay(sql, job) == seconds
        sql.do("update sluicegate.job set run_at = clock_timestamp()")
    answer = sql.fail(sql.take_one(), retry_in_seconds=0.0)
    assert answer["state"] == "pending"
    assert sql.take_one()["job"]["id"] == job


def test_the_last_attempt_makes_a_dead_letter_with_its_error(sql: Sql) -> None:
    job = sql.enqueue(max_attempts=2)
    sql.fail(sql.take_one(), retry_in_seconds=0)
    answer = sql.fail(sql.take_one(), "the end", retry_in_seconds=5, summary="s")
    row = sql.job(job)
    assert (answer["state"], answer["dead_letter"], answer["attempt"]) == ("failed", True, 2)
    assert (row["state"], row["error"], row["result"]) == ("failed", "the end", None)
    assert row["finished_at"] is not None
    assert sql.ends(job) == [("failed", "retry_scheduled"), ("failed", "dead_lettered")]
    assert sql.claim()["empty"] is True


def test_a_fail_without_retry_makes_a_dead_letter_at_once(sql: Sql) -> None:
    job = sql.enqueue()
    assert sql.fail(sql.take_one(), retry=False)["dead_letter"] is True
    assert sql.ends(job) == [("failed", "dead_lettered")]


def test_null_arguments_mean_the_defaults(sql: Sql) -> None:
    job = sql.enqueue()
    nothing: dict[str, Any] = {"retry_in_seconds": None, "retry": None, "summary": None}
    assert sql.fail(sql.take_one(), None, **nothing)["state"] == "scheduled"
    assert 27 <= delay(sql, job) <= 33
    assert sql.job(job)["error"] is None


def test_failing_twice_with_one_token_counts_once(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    first = sql.fail(claim)
    again = sql.fail(claim, "another text", retry=False)
    assert (again["status"], again["replayed"], again["state"]) == ("ok", True, "scheduled")
    assert again["run_at"] == first["run_at"]
    assert sql.complete(claim)["status"] == "conflict"
    assert len(sql.attempts(job)) == 1
    check_ledger(sql)


def test_a_replayed_fail_after_the_next_claim_leaves_that_claim_alone(sql: Sql) -> None:
    job = sql.enqueue()
    old = sql.take_one()
    sql.fail(old, retry_in_seconds=0)
    new = sql.take_one()
    again = sql.fail(old)
    assert (again["status"], again["replayed"], again["state"]) == ("ok", True, "claimed")
    assert sql.complete(new)["status"] == "ok"
    assert sql.state(job) == "done"
    check_ledger(sql)

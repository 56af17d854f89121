"""Release: a job goes back unfinished, with a reason and perhaps not before a time."""

from datetime import UTC, datetime, timedelta

from tests.sql.budgets import govern, used, window
from tests.sql.verbs import Sql, check_ledger, released


def test_a_released_job_is_pending_at_its_old_place_with_its_attempt_spent(sql: Sql) -> None:
    first = sql.enqueue()
    sql.enqueue()
    claim = sql.take_one()
    run_at = sql.job(first)["run_at"]
    answer = sql.release(claim, reason="quota")
    row = sql.job(first)
    assert (answer["status"], answer["state"], answer["attempt"]) == ("ok", "pending", 1)
    assert (row["run_at"], row["error"], row["attempts_total"], row["worker"]) == (run_at, "quota", 1, None)
    (attempt,) = sql.attempts(first)
    assert (attempt["outcome"], attempt["disposition"], attempt["error"], attempt["started"]) == (
        "released", "requeued", "quota", True,
    )  # fmt: skip
    assert sql.take_one()["job"]["id"] == first


def test_a_release_may_ask_for_a_later_time(sql: Sql) -> None:
    job = sql.enqueue()
    later = datetime.now(UTC).replace(microsecond=123_456) + timedelta(hours=1)
    answer = sql.release(sql.take_one(), not_before=later)
    assert (answer["state"], datetime.fromisoformat(answer["run_at"])) == ("scheduled", later)
    assert sql.claim()["empty"] is True
    sql.call("retry", job_id=job)
    past = sql.release(sql.take_one(), not_before=later - timedelta(days=1))
    assert past["state"] == "pending"


def test_a_release_of_a_job_that_never_started_gives_the_attempt_back_but_not_the_record(sql: Sql) -> None:
    job = sql.enqueue(max_attempts=1)
    for number in range(1, 4):
        claim = sql.take_one()
        assert claim["job"]["attempt"] == 1
        answer = sql.release(claim, started=False)
        assert (answer["state"], answer["attempt"], answer["dead_letter"]) == ("pending", 0, False)
        assert sql.job(job)["attempts_total"] == number
    assert [attempt["started"] for attempt in sql.attempts(job)] == [False] * 3
    assert check_ledger(sql) == 3


def test_a_release_at_the_cap_waits_again_and_the_counter_stays_at_the_cap(sql: Sql) -> None:
    job = sql.enqueue(max_attempts=2)
    sql.release(sql.take_one())
    answer = sql.release(sql.take_one())
    assert (answer["state"], answer["dead_letter"], answer["attempt"]) == ("pending", False, 2)
    claim = sql.take_one()
    assert (claim["job"]["attempt"], claim["attempts_total"]) == (2, 3)
    assert sql.fail(claim)["dead_letter"] is True
    assert sql.ends(job) == [("released", "requeued"), ("released", "requeued"), ("failed", "dead_lettered")]
    check_ledger(sql)


def test_started_null_means_started(sql: Sql) -> None:
    sql.enqueue()
    assert sql.release(sql.take_one(), started=None, reason=None, not_before=None)["attempt"] == 1


def test_releasing_twice_with_one_token_gives_one_attempt_back(sql: Sql) -> None:
    job = sql.enqueue()
    sql.release(sql.take_one())
    claim = sql.take_one()
    assert sql.release(claim, started=False)["attempt"] == 1
    again = sql.release(claim, started=False)
    assert (again["status"], again["replayed"], again["attempt"]) == ("ok", True, 1)
    assert sql.fail(claim)["status"] == "conflict"
    assert sql.job(job)["attempt"] == 1
    check_ledger(sql)


def test_a_released_job_that_was_cancelled_meanwhile_is_cancelled(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    sql.call("cancel", job_id=job)
    assert sql.release(claim)["state"] == "cancelled"
    assert sql.ends(job) == [("cancelled", "cancelled")]
    check_ledger(sql)


def test_a_refused_quota_gives_the_attempt_back_names_the_account_and_stays_charged(sql: Sql) -> None:
    job = sql.enqueue(max_attempts=1)
    govern(sql, "q", window(3))
    for number in range(1, 4):
        claim = sql.take_one()
        assert claim["job"]["attempt"] == 1
        (answer,) = sql.claim("nobody", finished=[released(claim, account="claude-1")])["finished"]
        assert (answer["status"], answer["state"], answer["attempt"]) == ("ok", "pending", 0)
        assert used(sql) == number
    assert sql.claim()["deferred"][0]["reason"] == "window_exhausted"
    shown = sql.call("get_job", job_id=job)["attempts"]
    assert [(attempt["account"], attempt["started"]) for attempt in shown] == [("claude-1", True)] * 3
    check_ledger(sql)


def test_an_account_is_text_of_1_to_128_bytes(sql: Sql) -> None:
    sql.enqueue()
    claim = sql.take_one()
    for account in ("", "a" * 129, 3, ["a"]):
        (answer,) = sql.claim("nobody", finished=[released(claim, account=account)])["finished"]
        assert answer["status"] == "invalid_argument"
        assert "account" in answer["message"]
    assert sql.state(claim["job"]["id"]) == "claimed"


def test_a_holder_may_cancel_its_job(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    dropped = {**released(claim), "outcome": "cancelled", "reason": "nobody wants it"}
    for replayed in (False, True):
        (answer,) = sql.claim("nobody", finished=[dropped])["finished"]
        assert (answer["status"], answer["state"], answer["replayed"]) == ("ok", "cancelled", replayed)
    assert sql.ends(job) == [("cancelled", "cancelled")]
    assert sql.job(job)["error"] == "nobody wants it"
    check_ledger(sql)

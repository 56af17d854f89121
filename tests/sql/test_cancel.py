"""Cancel: at once when nobody holds the job, else through its holder."""

from datetime import UTC, datetime, timedelta

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger, in_background, refused, wait_blocked


def test_a_job_that_nobody_holds_is_cancelled_at_once(sql: Sql) -> None:
    pending, scheduled = sql.enqueue(dedup_key="k"), sql.enqueue(run_at=datetime.now(UTC) + timedelta(days=1))
    for job in (pending, scheduled):
        answer = sql.call("cancel", job_id=job, reason="changed my mind")
        assert (answer["status"], answer["state"], answer["cancel_requested"]) == ("ok", "cancelled", True)
        row = sql.job(job)
        assert (row["state"], row["error"], row["attempts_total"]) == ("cancelled", "changed my mind", 0)
        assert row["finished_at"] is not None
    assert sql.claim()["empty"] is True
    assert sql.one("select count(*) from sluicegate.attempt") == 0


def test_cancelling_twice_is_fine(sql: Sql) -> None:
    job = sql.enqueue()
    sql.call("cancel", job_id=job)
    before = sql.contents()
    again = sql.call("cancel", job_id=job)
    assert (again["status"], again["state"]) == ("ok", "cancelled")
    assert sql.contents() == before


def test_a_claimed_job_stays_with_its_holder_who_may_still_complete_it(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    answer = sql.call("cancel", job_id=job, reason="why")
    assert (answer["status"], answer["state"], answer["cancel_requested"]) == ("ok", "claimed", True)
    assert answer["message"]
    assert sql.call("cancel", job_id=job)["state"] == "claimed"
    assert sql.job(job)["error"] == "why"
    assert sql.complete(claim)["state"] == "done"
    check_ledger(sql)


def test_a_failed_attempt_of_a_cancelled_job_ends_it_and_keeps_the_reason(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    sql.call("cancel", job_id=job, reason="merged meanwhile")
    answer = sql.fail(claim, error="stopped")
    assert (answer["state"], answer["dead_letter"]) == ("cancelled", False)
    assert sql.ends(job) == [("cancelled", "cancelled")]
    assert sql.one("select error from sluicegate.job where id = %s", job) == "merged meanwhile"
    assert sql.fail(claim, error="stopped")["replayed"] is True


def test_a_job_that_completes_although_cancelled_is_done_and_no_longer_cancelled(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    sql.call("cancel", job_id=job, reason="too late")
    assert sql.complete(claim)["state"] == "done"
    shown = sql.call("get_job", job_id=job)["job"]
    assert (shown["cancel_requested"], shown["error"]) == (False, None)


def test_a_cancelled_job_whose_lease_lapses_is_never_claimed_again(sql: Sql) -> None:
    by_claim, by_reap = sql.enqueue("a"), sql.enqueue("b")
    sql.take("a", "b", n=2)
    for job in (by_claim, by_reap):
        sql.call("cancel", job_id=job)
    sql.lapse(by_claim, by_reap)
    assert sql.claim("a")["empty"] is True
    assert sql.call("reap") == {"requeued": 0, "dead_lettered": 0, "cancelled": 1}
    for job in (by_claim, by_reap):
        assert sql.state(job) == "cancelled"
        assert sql.ends(job) == [("reaped", "cancelled")]
    check_ledger(sql)


def test_cancelling_a_job_whose_lease_has_lapsed_ends_it_at_once(sql: Sql) -> None:
    job = sql.enqueue()
    sql.take_one()
    sql.lapse(job)
    assert sql.call("cancel", job_id=job)["state"] == "cancelled"
    assert sql.ends(job) == [("reaped", "cancelled")]
    check_ledger(sql)


def test_a_finished_job_is_a_conflict(sql: Sql) -> None:
    done, dead = sql.enqueue(), sql.enqueue()
    first, second = sql.take(n=2)
    sql.complete(first)
    sql.fail(second, retry=False)
    for job, state in ((done, "done"), (dead, "failed")):
        answer = sql.call("cancel", job_id=job)
        assert (answer["status"], answer["state"], answer["cancel_requested"]) == ("conflict", state, False)


def test_a_cancel_waits_for_a_claim_that_is_being_made_and_then_goes_through_the_holder(
    sql: Sql, another: OpenSql
) -> None:
    job = sql.enqueue()
    worker, canceller = another(), another()
    with worker.transaction():
        claim = worker.take_one()
        waiting = in_background(lambda: canceller.call("cancel", job_id=job))
        wait_blocked(sql, canceller.pid, by=worker.pid)
        worker.commit()
    assert waiting.result(30)["state"] == "claimed"
    assert worker.heartbeat(claim)["cancelled"] is True


def test_bad_input_is_named(sql: Sql) -> None:
    job = sql.enqueue()
    with refused(sql, "SG001", "reason"):
        sql.call("cancel", job_id=job, reason="x" * 65_537)
    with refused(sql, "SG002", "scope"):
        sql.call("cancel", job_id=job, scope="team:none")
    assert sql.call("cancel", job_id=999)["status"] == "not_found"
    assert sql.one("select sluicegate.cancel(null)")["status"] == "not_found"

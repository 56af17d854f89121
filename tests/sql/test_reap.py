"""Reap: lapsed claims are put right where nobody claims."""

from typing import Any

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger, refused


def test_a_lapsed_claim_is_pending_again_or_a_dead_letter_or_cancelled(sql: Sql) -> None:
    again, dead, cancelled, alive = (sql.enqueue(f"q{n}", max_attempts=1 if n == 1 else 5) for n in range(4))
    claims = sql.take("q0", "q1", "q2", "q3", n=4, worker="w")
    sql.call("cancel", job_id=cancelled)
    sql.lapse(again, dead, cancelled)
    assert sql.call("reap") == {"requeued": 1, "dead_lettered": 1, "cancelled": 1}
    assert [sql.state(job) for job in (again, dead, cancelled, alive)] == ["pending", "failed", "cancelled", "claimed"]
    assert sql.ends(again) == [("reaped", "requeued")]
    assert sql.ends(dead) == [("reaped", "dead_lettered")]
    row = sql.job(again)
    assert row["worker"] is row["lease_expires_at"] is row["lease_token_hash"] is row["finished_at"] is None
    assert (row["attempt"], row["attempts_total"]) == (1, 1)
    assert "lease ran out" in row["error"]
    assert {sql.complete(claim)["status"] for claim in claims[:3]} == {"conflict"}
    assert sql.call("reap") == {"requeued": 0, "dead_lettered": 0, "cancelled": 0}
    check_ledger(sql)


def test_a_reaped_job_can_be_claimed_by_anyone(sql: Sql) -> None:
    job = sql.enqueue(priority=5)
    sql.take_one()
    sql.lapse(job)
    sql.call("reap")
    sql.enqueue(priority=6)
    claim = sql.take_one()
    assert (claim["job"]["id"], claim["prior_attempts"][0]["outcome"]) == (job, "reaped")


def test_one_call_reaps_up_to_its_limit_over_all_scopes(sql: Sql) -> None:
    sql.do("insert into sluicegate.endpoint (owner_id, slug) select id, 'other' from sluicegate.owner")
    jobs = []
    for scope in ("endpoint:default", "endpoint:other"):
        jobs += sql.enqueue_many([{"queue": f"q{n % 3}"} for n in range(10)], scope=scope)
        sql.take("q0", "q1", "q2", n=10, scope=scope)
    sql.lapse(*jobs)
    assert sql.call("reap", limit=7)["requeued"] == 7
    assert sql.call("reap", limit=100)["requeued"] == 13
    check_ledger(sql)


def test_reaping_never_waits_for_a_row_that_someone_holds(sql: Sql, another: OpenSql) -> None:
    held, free = sql.enqueue(), sql.enqueue()
    first, _ = sql.take(n=2)
    sql.lapse(held, free)
    worker = another()
    with worker.transaction():
        worker.complete(first)
        assert sql.call("reap")["requeued"] == 1
        worker.commit()
    assert (sql.state(held), sql.state(free)) == ("done", "pending")
    check_ledger(sql)


def test_a_limit_out_of_range_is_refused(sql: Sql) -> None:
    job = sql.enqueue()
    sql.take_one()
    sql.lapse(job)
    bad: tuple[Any, ...] = (0, -1, None, 100_001)
    for limit in bad:
        with refused(sql, "SG001", "limit"):
            sql.call("reap", limit=limit)

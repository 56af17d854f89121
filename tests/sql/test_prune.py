"""Prune: finished jobs go, live ones never; attempts are counted before they go."""

from typing import Any

import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger, in_background, refused, wait_blocked


def age(sql: Sql) -> None:
    """Make everything so far a hundred days old."""
    sql.do(
        "update sluicegate.job set created_at = created_at - interval '100 days', run_at = run_at - interval '100 days',"
        " claimed_at = claimed_at - interval '100 days', finished_at = finished_at - interval '100 days'"
    )
    sql.do("update sluicegate.attempt set opened_at = opened_at - interval '100 days'")
    sql.do("update sluicegate.attempt_end set ended_at = ended_at - interval '100 days'")
    sql.do("update sluicegate.late_call set last_at = last_at - interval '100 days'")
    sql.do("update sluicegate.request set created_at = created_at - interval '100 days'")


def one_of_each(sql: Sql) -> dict[str, int]:
    """A job in every state, by that state, each but the first two with attempts behind it."""
    jobs = {}
    for state in ("done", "failed", "cancelled", "claimed", "pending", "scheduled"):
        jobs[state] = sql.enqueue()
        claim = sql.take_one()
        if state == "done":
            sql.complete(claim)
        elif state == "failed":
            sql.fail(claim, retry=False)
        elif state == "cancelled":
            sql.call("cancel", job_id=jobs[state])
            sql.release(claim)
        elif state == "pending":
            sql.release(claim)
            sql.do("update sluicegate.job set priority = 30000 where id = %s", jobs[state])
            sql.do("update sluicegate.job set state = 'scheduled', run_at = 'infinity' where id = %s", jobs[state])
        elif state == "scheduled":
            sql.fail(claim)
    sql.do("update sluicegate.job set state = 'pending', run_at = clock_timestamp() where run_at = 'infinity'")
    assert {state: sql.state(job) for state, job in jobs.items()} == {state: state for state in jobs}
    return jobs


def test_old_finished_jobs_go_and_live_ones_stay_however_old(sql: Sql) -> None:
    old = one_of_each(sql)
    age(sql)
    new = sql.enqueue("new")
    sql.complete(sql.take_one("new"))
    assert sql.call("prune")["jobs"] == 3
    left = {row["id"] for row in sql.rows("select id from sluicegate.job")}
    assert left == {old["claimed"], old["pending"], old["scheduled"], new}
    for days, keep in ((0, 0), (36_500, 0)):
        sql.call("prune", job_days=days, keep_jobs=keep)
        left = {row["id"] for row in sql.rows("select id from sluicegate.job")}
        assert left == {old["claimed"], old["pending"], old["scheduled"]}


def test_attempts_outlive_their_jobs_and_are_counted_when_they_go(sql: Sql) -> None:
    old = one_of_each(sql)
    for _ in range(3):
        sql.enqueue("other")
        sql.complete(sql.take_one("other"))
    age(sql)
    opened = check_ledger(sql)
    assert opened == 9
    sql.call("prune", attempt_days=365)
    assert sql.one("select count(*) from sluicegate.attempt") == 9
    pruned = sql.call("prune")
    assert pruned["attempts"] == 8
    assert check_ledger(sql) == opened
    counted = sql.rows(
        "select q.name, sum(c.attempts)::int as n from sluicegate.attempt_count c"
        " join sluicegate.queue q on q.id = c.queue_id group by q.name"
    )
    assert {row["name"]: row["n"] for row in counted} == {"q": 5, "other": 3}
    assert sql.one("select bool_and(minute = date_trunc('minute', minute)) from sluicegate.attempt_count")
    assert sql.one("select job_id from sluicegate.attempt") == old["claimed"]
    assert sql.one("select count(*) from sluicegate.attempt_end") == 0
    assert sql.call("prune")["attempts"] == 0
    assert check_ledger(sql) == opened


def test_attempts_pruned_later_in_the_same_minute_are_added_to_the_count(sql: Sql) -> None:
    for _ in range(4):
        sql.enqueue()
        sql.complete(sql.take_one())
    sql.do(
        "update sluicegate.attempt set opened_at = date_trunc('minute', opened_at - interval '100 days') + interval '7 s'"
    )
    for want in (3, 1, 0):
        assert sql.call("prune", limit=3)["attempts"] == want
    assert sql.one("select array_agg(attempts) from sluicegate.attempt_count") == [4]
    assert check_ledger(sql) == 4


def test_counts_are_kept_a_month_longer_than_use(sql: Sql) -> None:
    for days in (431, 433):
        sql.do(
            "insert into sluicegate.attempt_count select 1, date_trunc('minute', clock_timestamp()) - %s * interval '1 day', 1",
            days,
        )
    assert sql.call("prune")["attempt_counts"] == 1
    assert sql.one("select count(*) from sluicegate.attempt_count") == 1


def test_the_newest_of_each_scope_are_kept_by_number(sql: Sql) -> None:
    sql.do("insert into sluicegate.endpoint (owner_id, slug) select id, 'other' from sluicegate.owner")
    kept = []
    for scope, count in (("endpoint:default", 7), ("endpoint:other", 2)):
        for _ in range(count):
            kept.append(sql.enqueue(scope=scope))
            sql.complete(sql.take_one(scope=scope), scope=scope)
    assert sql.call("prune", keep_jobs=3)["jobs"] == 4
    assert [row["id"] for row in sql.rows("select id from sluicegate.job order by id")] == kept[4:]


def test_answers_to_request_ids_go_after_a_day_and_late_calls_with_the_attempts(sql: Sql) -> None:
    job = sql.enqueue(request_id="old")
    sql.complete({"job": {"id": job}, "lease_token": "stale"})
    age(sql)
    sql.enqueue(request_id="new")
    pruned = sql.call("prune")
    assert (pruned["requests"], pruned["late_calls"]) == (1, 1)
    assert sql.one("select array_agg(request_id) from sluicegate.request") == ["new"]


def test_a_batch_is_limited_for_every_kind(sql: Sql) -> None:
    for _ in range(5):
        job = sql.enqueue(request_id=f"r{_}")
        sql.complete(sql.take_one())
        sql.complete({"job": {"id": job}, "lease_token": "stale"})
    age(sql)
    kinds = ("jobs", "attempts", "attempt_counts", "requests", "late_calls", "refusals", "audit")
    sql.do(
        "insert into sluicegate.attempt_count select n, timestamptz '2000-01-01Z', 1 from generate_series(1, 5) n;"
        " insert into sluicegate.refusal select n, 'paused', timestamptz '2000-01-01Z', 1 from generate_series(1, 5) n;"
        " insert into sluicegate.policy_audit (queue_id, scope_id, at, verb, database_user)"
        " select n, 1, timestamptz '2000-01-01Z', 'set', 'somebody' from generate_series(1, 5) n"
    )
    none = {"usage": 0, "forgiven": 0, "windows": 0}
    assert sql.call("prune", limit=2) == {**dict.fromkeys(kinds, 2), **none}
    assert sql.call("prune", limit=1_000_000) == {**dict.fromkeys(kinds, 3), **none}


def test_pruning_waits_for_nobody(sql: Sql, another: OpenSql) -> None:
    held, free = sql.enqueue(), sql.enqueue()
    for job in (held, free):
        sql.fail(sql.take_one(), retry=False)
        sql.complete({"job": {"id": job}, "lease_token": "stale"})
    age(sql)
    sql.do("set lock_timeout = '2s'")
    holder = another()
    with holder.transaction():
        holder.call("retry", job_id=held)
        holder.complete({"job": {"id": held}, "lease_token": "stale"})
        pruned = sql.call("prune")
        holder.commit()
    assert (pruned["jobs"], pruned["late_calls"]) == (1, 1)
    assert sql.state(held) == "pending"


def test_a_second_prune_waits_for_the_first_and_every_attempt_is_counted_once(sql: Sql, another: OpenSql) -> None:
    for _ in range(20):
        sql.enqueue()
        sql.complete(sql.take_one())
    age(sql)
    first, second = another(), another()
    with first.transaction():
        assert first.call("prune", limit=5)["attempts"] == 5
        waiting = in_background(lambda: second.call("prune", limit=100))
        wait_blocked(sql, second.pid, by=first.pid)
        first.commit()
    assert waiting.result(30)["attempts"] == 15
    assert check_ledger(sql) == 20


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("job_days", (-1, None, 36_501, 2**31 - 1)),
        ("keep_jobs", (-1, None)),
        ("attempt_days", (31, 0, -1, None, 36_501)),
        ("limit", (0, -1, None, 1_000_001)),
    ],
)
def test_a_retention_out_of_range_is_refused_and_deletes_nothing(sql: Sql, field: str, values: Any) -> None:
    one_of_each(sql)
    age(sql)
    for value in values:
        with refused(sql, "SG001", field):
            sql.call("prune", **{field: value})

"""Heartbeat: a lease lives on, and its holder learns of a cancellation."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, each, in_background, lease, refused, wait_blocked


def left(answer: dict[str, Any]) -> float:
    """How many seconds the answer gives the lease from now on."""
    span = datetime.fromisoformat(answer["lease_expires_at"]) - datetime.fromisoformat(answer["server_time"])
    return span.total_seconds()


def test_a_heartbeat_renews_the_lease_for_as_long_as_it_was_given(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one(lease_seconds=77)
    answer = sql.heartbeat(claim)
    assert (answer["job_id"], answer["status"], answer["cancelled"], answer["message"]) == (job, "ok", False, None)
    assert left(answer) == 77
    assert sql.job(job)["lease_expires_at"] == datetime.fromisoformat(answer["lease_expires_at"])


def test_a_heartbeat_never_shortens_a_lease_unless_asked(sql: Sql) -> None:
    sql.enqueue()
    claim = sql.take_one(lease_seconds=600)
    assert left(sql.heartbeat(claim, lease_seconds=10)) > 590
    assert left(sql.heartbeat(claim)) == 600, "the short heartbeat has not become the length of later ones"
    assert left(sql.heartbeat(claim, lease_seconds=1000)) == 1000
    assert left(sql.heartbeat(claim)) == 1000
    assert left(sql.heartbeat(claim, lease_seconds=10, shorten=True)) == 10
    assert left(sql.heartbeat(claim)) == 10
    assert left(sql.heartbeat(claim, lease_seconds=None, shorten=None, note=None)) == 10


def test_a_lapsed_lease_that_nobody_took_over_is_renewed(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    sql.lapse(job)
    assert left(sql.heartbeat(claim)) == 300
    assert sql.claim()["empty"] is True
    assert sql.call("reap") == {"requeued": 0, "dead_lettered": 0, "cancelled": 0}


def test_the_holder_of_a_cancelled_job_is_told(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    sql.call("cancel", job_id=job)
    answer = sql.heartbeat(claim)
    assert (answer["status"], answer["cancelled"]) == ("ok", True)
    sql.lapse(job)
    sql.call("reap")
    late = sql.heartbeat(claim)
    assert (late["status"], late["cancelled"], late["lease_expires_at"]) == ("conflict", True, None)


def test_a_note_is_kept_until_the_next_one(sql: Sql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    sql.heartbeat(claim, note="half way")
    sql.heartbeat(claim)
    assert sql.job(job)["note"] == "half way"
    sql.heartbeat(claim, note="nearly there")
    assert sql.job(job)["note"] == "nearly there"


def test_many_heartbeats_are_answered_in_input_order(sql: Sql) -> None:
    for _ in range(3):
        sql.enqueue()
    a, b, c = sql.take(n=3)
    sql.complete(b)
    items = [
        {**lease(c), "lease_seconds": 1000, "note": "n"},
        {"job_id": 999, "lease_token": "t"},
        lease(b),
        {**lease(a), "lease_token": "stale"},
        {**lease(a), "lease_seconds": 60.0},
        {**lease(c), "lease_seconds": None, "shorten": None, "note": None},
    ]
    answers = sql.call("heartbeat_many", items=items)["heartbeats"]
    assert [answer["status"] for answer in answers] == ["ok", "not_found", "conflict", "conflict", "ok", "ok"]
    assert [answer["job_id"] for answer in answers] == [item["job_id"] for item in items]


def test_a_bad_item_among_many_is_named_and_nothing_is_renewed(sql: Sql) -> None:
    sql.enqueue()
    claim = sql.take_one()
    fine = lease(claim)
    for field, bad in each(
        ("heartbeats", 5),
        ("heartbeats", None),
        ("job_id", {"lease_token": "t"}),
        ("job_id", {**fine, "job_id": "1"}),
        ("job_id", {**fine, "job_id": 1.5}),
        ("job_id", {**fine, "job_id": 10**30}),
        ("lease_token", {"job_id": 1}),
        ("lease_token", {**fine, "lease_token": 5}),
        *[
            ("lease_seconds", {**fine, "lease_seconds": value})
            for value in each(0, 86_401, 1.5, "60", [], True, 10**400)
        ],
        ("shorten", {**fine, "shorten": "yes"}),
        ("note", {**fine, "note": 5}),
        ("note", {**fine, "note": "x" * 513}),
        ("colour", {**fine, "colour": "red"}),
    ):
        with refused(sql, "SG001", field):
            sql.call("heartbeat_many", items=[fine, bad])
    for items in each([], {}, None, [fine] * 10_001):
        with refused(sql, "SG001", "heartbeats"):
            sql.call("heartbeat_many", items=items)
    with refused(sql, "SG002", "scope"):
        sql.call("heartbeat_many", items=[fine], scope="team:nobody")


def test_a_job_that_another_transaction_holds_is_not_waited_for_even_where_it_is_the_only_one(
    sql: Sql, another: OpenSql
) -> None:
    sql.do("alter function sluicegate.heartbeat_many set lock_timeout = '50s'; set statement_timeout = '20s'")
    job = sql.enqueue()
    claim = sql.take_one()
    holder = another()
    with holder.transaction():
        holder.do("select from sluicegate.job where id = %s for update", job)
        (answer,) = sql.call("heartbeat_many", items=[lease(claim)])["heartbeats"]
        assert (answer["status"], answer["lease_expires_at"]) == ("unavailable", None)
    assert sql.call("heartbeat_many", items=[lease(claim)])["heartbeats"][0]["status"] == "ok"


def test_one_job_that_another_transaction_holds_does_not_hold_up_the_heartbeats_of_others(
    sql: Sql, another: OpenSql
) -> None:
    jobs = [sql.enqueue() for _ in range(3)]
    items = [lease(claim) for claim in sql.take(n=3)]
    holder = another()
    with holder.transaction():
        holder.do("select from sluicegate.job where id = %s for update", jobs[1])
        answers = sql.call("heartbeat_many", items=items[::-1])["heartbeats"]
        assert [answer["status"] for answer in answers] == ["ok", "unavailable", "ok"]
        assert "again" in answers[1]["message"]
    assert sql.call("heartbeat_many", items=items)["heartbeats"][1]["status"] == "ok"
    assert sql.one("select count(*) from sluicegate.late_call") == 0


def test_a_heartbeat_counts_from_the_moment_it_has_its_row(sql: Sql, another: OpenSql) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    holder, caller = another(), another()
    with holder.transaction():
        holder.do("select from sluicegate.job where id = %s for update", job)
        call = in_background(lambda: caller.heartbeat(claim))
        wait_blocked(sql, caller.pid, by=holder.pid)
        released = holder.one("select clock_timestamp()")
    answer = call.result(30)
    assert datetime.fromisoformat(answer["server_time"]) >= released.astimezone(UTC)
    assert datetime.fromisoformat(answer["lease_expires_at"]) >= released + timedelta(seconds=300)

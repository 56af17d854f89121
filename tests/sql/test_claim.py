"""Claim: order, leases, takeovers, and what it refuses."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger, completed, each, refused
from tests.support.counts import rounds


def test_a_claim_is_the_documented_object(sql: Sql) -> None:
    parent = sql.enqueue()
    job = sql.enqueue("mail", {"to": "ada"}, kind="send", title="T", tags=["x"], priority=3, parent_id=parent)
    response = sql.claim("mail", worker="w1", lease_seconds=60)
    (claim,) = response["claims"]
    assert claim["job"] == {
        "id": job, "queue": "mail", "kind": "send", "title": "T", "payload": {"to": "ada"}, "priority": 3,
        "tags": ["x"], "parent_id": parent, "attempt": 1, "max_attempts": 5,
    }  # fmt: skip
    row = sql.job(job)
    assert (claim["attempt_id"], claim["attempt_seq"], claim["attempts_total"]) == (row["attempt_id"], 1, 1)
    assert (claim["prior_attempts"], claim["account"], claim["admission"]) == ([], None, None)
    assert datetime.fromisoformat(claim["lease_expires_at"]) == row["lease_expires_at"]
    assert row["lease_expires_at"] - row["claimed_at"] == timedelta(seconds=60)
    assert (row["state"], row["worker"], row["attempt"]) == ("claimed", "w1", 1)
    assert set(response) == {"claims", "deferred", "empty", "gone", "replayed", "error", "held", "finished"}
    (attempt,) = sql.attempts(job)
    assert (attempt["id"], attempt["opened_at"], attempt["worker"]) == (row["attempt_id"], row["claimed_at"], "w1")


def test_each_claim_of_several_queues_has_the_token_of_its_own_job(sql: Sql) -> None:
    sql.enqueue_many({"queue": queue, "priority": number} for number in range(10) for queue in "cab")
    claims = sql.take(*"bca", n=30)
    assert [claim["job"]["priority"] for claim in claims] == [number for number in range(10) for _ in range(3)]
    assert [sql.complete(claim)["status"] for claim in claims] == ["ok"] * 30
    assert {claim["attempt_id"] for claim in claims} == {
        row["id"] for row in sql.rows("select id from sluicegate.attempt")
    }


def test_only_the_hash_of_a_lease_token_is_stored(sql: Sql) -> None:
    sql.enqueue()
    claim = sql.take_one()
    token = claim["lease_token"]
    assert len(bytes.fromhex(token)) >= 16
    assert sql.one("select lease_token_hash = sha256(convert_to(%s, 'UTF8')) from sluicegate.job", token)
    sql.complete(claim)
    for table in ("job", "attempt", "attempt_end", "request"):
        assert sql.one(f"select count(*) from sluicegate.{table} t where t::text like %s", f"%{token}%") == 0


def test_jobs_come_by_priority_then_due_time_then_id_over_several_queues(sql: Sql) -> None:
    now = datetime.now(UTC)
    jobs = [
        {"queue": f"q{n % 3}", "priority": n * 7 % 5 - 2, "run_at": (now - timedelta(seconds=n * 11 % 6)).isoformat()}
        for n in range(60)
    ]
    sql.enqueue_many(jobs)
    # Some are still marked as scheduled though their time has come: they compete like all others.
    sql.do("update sluicegate.job set state = 'scheduled' where id % 4 = 0")
    want = [row["id"] for row in sql.rows("select id from sluicegate.job order by priority, run_at, id")]
    got = []
    while claims := sql.take("q0", "q1", "q2", n=7):
        got += [claim["job"]["id"] for claim in claims]
    assert got == want


def test_the_order_holds_in_one_queue_with_and_without_scheduled_jobs(sql: Sql) -> None:
    for scheduled in (False, True):
        sql.enqueue_many([{"queue": "q", "priority": n * 13 % 7} for n in range(30)])
        if scheduled:
            sql.do("update sluicegate.job set state = 'scheduled' where id % 2 = 0 and state = 'pending'")
        live = "select id from sluicegate.job where state in ('pending', 'scheduled') order by priority, run_at, id"
        want = [row["id"] for row in sql.rows(live)]
        assert [claim["job"]["id"] for size in (1, 4, 25) for claim in sql.take(n=size)] == want


def test_many_jobs_falling_due_at_one_instant_come_by_priority(sql: Sql) -> None:
    count = rounds(5_000, 100_000)
    instant = datetime.now(UTC) + timedelta(hours=1)
    for first in range(0, count, 10_000):
        sql.enqueue_many(
            {"queue": "q", "priority": n * 7919 % 10, "run_at": instant.isoformat()}
            for n in range(first, min(first + 10_000, count))
        )
    sql.enqueue("q", "already pending", priority=5)
    assert [claim["job"]["payload"] for claim in sql.take(n=3)] == ["already pending"]
    sql.do("update sluicegate.job set run_at = clock_timestamp() - interval '1 second' where state = 'scheduled'")
    want = [
        row["id"]
        for row in sql.rows(
            "select id from sluicegate.job where state = 'scheduled' order by priority, run_at, id limit 3000"
        )
    ]
    got = [claim["job"]["id"] for _ in range(3) for claim in sql.take(n=1000)]
    assert got == want


def test_a_job_of_the_future_is_not_claimed_before_its_time(sql: Sql) -> None:
    sql.enqueue(priority=-100, run_at=datetime.now(UTC) + timedelta(hours=1))
    assert sql.claim()["empty"] is True
    due = sql.enqueue(priority=100)
    assert [claim["job"]["id"] for claim in sql.take(n=10)] == [due]
    assert sql.claim()["empty"] is True


def test_a_queue_that_is_asked_twice_or_does_not_exist_changes_nothing(sql: Sql) -> None:
    job = sql.enqueue()
    assert [claim["job"]["id"] for claim in sql.take("q", "q", "unknown", n=5)] == [job]
    assert sql.claim("unknown")["empty"] is True


def test_a_claim_without_a_request_is_fine_and_takes_nothing(sql: Sql) -> None:
    sql.enqueue()
    answer = sql.call("claim", requests=[])
    assert (answer["responses"], answer["finished"]) == ([], [])
    assert sql.one("select sluicegate.claim('[]', null, null) -> 'finished'") == []


def test_the_lease_is_the_calls_own_or_the_endpoints(sql: Sql) -> None:
    def given(**request: Any) -> timedelta:
        job = sql.job(sql.enqueue())
        sql.take_one(**request)
        row = sql.job(job["id"])
        length: timedelta = row["lease_expires_at"] - row["claimed_at"]
        return length

    assert given() == timedelta(seconds=300)
    assert given(lease_seconds=1) == timedelta(seconds=1)
    assert given(lease_seconds=86_400) == timedelta(days=1)
    sql.do("update sluicegate.endpoint set lease_seconds = 1800")
    assert given(lease_seconds=None) == timedelta(seconds=1800)


def test_a_lapsed_lease_is_taken_over_before_anything_else(sql: Sql) -> None:
    old = sql.enqueue(priority=100)
    first = sql.take_one(worker="lost")
    sql.enqueue(priority=-100)
    sql.lapse(old)
    second = sql.take_one(worker="new")
    assert second["job"]["id"] == old
    assert (second["job"]["attempt"], second["attempt_seq"], second["attempts_total"]) == (2, 2, 2)
    (prior,) = second["prior_attempts"]
    assert (prior["seq"], prior["outcome"], prior["disposition"]) == (1, "lease_expired", "requeued")
    assert sql.ends(old) == [("lease_expired", "requeued"), (None, None)]
    assert sql.complete(first)["status"] == "conflict"
    assert sql.complete(second)["status"] == "ok"


def test_prior_attempts_are_the_five_newest_that_are_closed(sql: Sql) -> None:
    job = sql.enqueue(max_attempts=100)
    for number in range(7):
        sql.fail(sql.take_one(), f"error {number}", retry_in_seconds=0)
    claim = sql.take_one()
    assert [(prior["seq"], prior["error"]) for prior in claim["prior_attempts"]] == [
        (seq, f"error {seq - 1}") for seq in (7, 6, 5, 4, 3)
    ]
    assert (claim["attempt_seq"], claim["job"]["attempt"]) == (8, 8)
    assert sql.job(job)["attempts_total"] == 8


def test_a_job_is_never_claimed_more_often_than_max_attempts(sql: Sql) -> None:
    job = sql.enqueue(max_attempts=2)
    for _ in range(2):
        sql.take_one()
        sql.lapse(job)
    response = sql.claim()
    assert (response["claims"], response["empty"]) == ([], True)
    row = sql.job(job)
    assert (row["state"], row["attempt"], row["attempts_total"]) == ("failed", 2, 2)
    assert sql.ends(job) == [("lease_expired", "requeued"), ("reaped", "dead_lettered")]
    check_ledger(sql)


def test_lapsed_jobs_at_their_cap_do_not_hide_the_one_behind_them(sql: Sql) -> None:
    spent = [sql.enqueue(max_attempts=1) for _ in range(5)]
    cancelled = sql.enqueue()
    open_one = sql.enqueue()
    assert len(sql.take(n=7)) == 7
    sql.call("cancel", job_id=cancelled)
    sql.lapse(*spent, cancelled, open_one)
    sql.do(
        "update sluicegate.job set lease_expires_at = lease_expires_at + interval '1 second' where id = %s", open_one
    )
    assert sql.take_one()["job"]["id"] == open_one
    assert [sql.state(job) for job in (*spent, cancelled)] == ["failed"] * 5 + ["cancelled"]
    check_ledger(sql)


def test_empty_means_nothing_claimable_and_busy_means_peers_hold_it(sql: Sql, another: OpenSql) -> None:
    sql.enqueue("pending")
    sql.enqueue("due", run_at=datetime.now(UTC) + timedelta(hours=1))
    sql.do("update sluicegate.job set run_at = clock_timestamp() where state = 'scheduled'")
    lapsed = sql.enqueue("lapsed")
    sql.take_one("lapsed")
    sql.lapse(lapsed)
    peer = another()
    with peer.transaction():
        assert len(peer.take("pending", "due", "lapsed", n=3)) == 3
        for queue in ("pending", "due", "lapsed"):
            response = sql.claim(queue)
            assert (response["claims"], response["empty"], response["deferred"]) == ([], False, [])
    assert len(sql.take("pending", "due", "lapsed", n=3)) == 3
    assert sql.claim("pending", "due", "lapsed")["empty"] is True


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_claim_refuses_every_isolation_but_read_committed(sql: Sql, level: str) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    sql.do(f"set default_transaction_isolation = '{level}'")
    with refused(sql, "SG004", "transaction_isolation"):
        sql.claim()
    with refused(sql, "SG004", "transaction_isolation"):
        sql.call("claim", requests=[], finished=[completed(claim)])
    with refused(sql, "SG004", "transaction_isolation"):
        sql.call("claim_job", job_id=job)


def test_a_claim_commits_durably_whatever_the_session_says(sql: Sql) -> None:
    job = sql.enqueue()
    for setting in ("off", "local", "remote_write", "remote_apply", "on"):
        sql.do(f"set synchronous_commit = {setting}")
        want = "remote_apply" if setting == "remote_apply" else "on"
        for verb in (lambda: sql.claim("none"), lambda: sql.call("claim_job", job_id=job)):
            with sql.transaction():
                verb()
                assert sql.one("select current_setting('synchronous_commit')") == want
        assert sql.one("select current_setting('synchronous_commit')") == setting


def test_the_settings_of_the_session_are_back_after_a_claim(sql: Sql) -> None:
    sql.enqueue()
    sql.do("set lock_timeout = '7s'; set enable_seqscan = on; set search_path = public")
    with sql.transaction():
        sql.claim(finished=[{"job_id": 1}])
        names = ("lock_timeout", "enable_seqscan", "search_path")
        assert [sql.one("select current_setting(%s)", name) for name in names] == ["7s", "on", "public"]


BAD_REQUESTS: list[tuple[str, dict[str, Any]]] = [
    *[("n", {"n": n}) for n in each(0, -1, 1001, 1.5, "1", True, [1], {}, 10**30)],
    *[("lease_seconds", {"lease_seconds": s}) for s in each(0, -1, 86_401, 0.5, "300", True, [], 10**30)],
    *[("queues", {"queues": q}) for q in each([], "q", None, {}, 5, [5], [None], [["q"]], ["q"] * 1001, ["q", "a b"])],
    *[("request_id", {"request_id": r}) for r in each("", "x" * 129, 5, [], {}, True)],
    *[
        ("scope", {"scope": s})
        for s in each("default", "", "Endpoint:default", "endpoint:", "team:A", 5, [], "endpoint:a@")
    ],
    ("queue", {"queue": "q"}),
    ("lease", {"lease": 5}),
]


def test_a_bad_request_is_named_by_its_field_and_changes_nothing(sql: Sql) -> None:
    sql.enqueue()
    for field, request in BAD_REQUESTS:
        with refused(sql, "SG001", field):
            sql.claim("q", **{name: value for name, value in request.items() if name != "queues"}) if (
                "queues" not in request
            ) else sql.call("claim", requests=[request])
    for requests in each({}, "q", 5, [{"queues": ["q"]}] * 101):
        with refused(sql, "SG001", "requests"):
            sql.call("claim", requests=requests)
    for odd in each(5, None, "q", []):
        with refused(sql, "SG001", "requests"):
            sql.call("claim", requests=[odd])
    with refused(sql, "SG001", "requests"):
        sql.one("select sluicegate.claim(null)")
    with refused(sql, "SG001", "worker"):
        sql.claim(worker="w" * 129)
    with refused(sql, "SG001", "finished"):
        sql.call("claim", requests=[], finished={})
    with refused(sql, "SG001", "finished"):
        sql.call("claim", requests=[], finished=[completed({"job": {"id": 1}, "lease_token": ""})] * 10_001)
    with refused(sql, "SG002", "scope"):
        sql.claim(scope="endpoint:nobody")


def test_several_requests_in_one_call_are_answered_each_for_itself(sql: Sql) -> None:
    a, b = sql.enqueue("a"), sql.enqueue("b")
    requests = [
        {"queues": ["a"]},
        {"queues": ["a"], "n": 0},
        {"queues": ["b"], "scope": "endpoint:nobody"},
        {"queues": ["b"], "request_id": "r", "scope": "endpoint:nobody"},
        {"queues": ["a"]},
        5,
        {"queues": ["b", "a"], "n": 9},
    ]
    responses = sql.call("claim", requests=requests)["responses"]
    assert [[claim["job"]["id"] for claim in response["claims"]] for response in responses] == [
        [a], [], [], [], [], [], [b],
    ]  # fmt: skip
    errors = [
        response["error"] and (response["error"]["sqlstate"], response["error"]["field"]) for response in responses
    ]
    assert errors == [
        None, ("SG001", "n"), ("SG002", "scope"), ("SG002", "scope"), None, ("SG001", "requests"), None,
    ]  # fmt: skip
    assert all(error["message"] and error["hint"] for error in (response["error"] for response in responses) if error)
    assert responses[4]["empty"] is True
    check_ledger(sql)


def test_a_claim_that_is_rolled_back_never_was(sql: Sql) -> None:
    sql.enqueue()
    before = sql.contents()
    with sql.transaction():
        sql.claim(request_id="r")
    assert sql.contents() == before
    assert len(sql.take(request_id="r")) == 1

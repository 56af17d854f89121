"""Claim: order, leases, takeovers, finishes that ride along, and what it refuses."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger, completed, failed, lease, refused, released
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
    assert set(response) == {"claims", "deferred", "empty", "gone", "replayed", "error", "finished"}
    (attempt,) = sql.attempts(job)
    assert (attempt["id"], attempt["opened_at"], attempt["worker"]) == (row["attempt_id"], row["claimed_at"], "w1")


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
    *[("n", {"n": n}) for n in (0, -1, 1001, 1.5, "1", True, [1], {}, 10**30)],
    *[("lease_seconds", {"lease_seconds": s}) for s in (0, -1, 86_401, 0.5, "300", True, [], 10**30)],
    *[("queues", {"queues": q}) for q in ([], "q", None, {}, 5, [5], [None], [["q"]], ["q"] * 1001, ["q", "a b"])],
    *[("request_id", {"request_id": r}) for r in ("", "x" * 129, 5, [], {}, True)],
    *[
        ("scope", {"scope": s})
        for s in ("default", "", "Endpoint:default", "endpoint:", "team:A", 5, [], "endpoint:a@")
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
    for requests in ({}, "q", 5, [{"queues": ["q"]}] * 101):
        with refused(sql, "SG001", "requests"):
            sql.call("claim", requests=requests)
    for request in (5, None, "q", []):
        with refused(sql, "SG001", "requests"):
            sql.call("claim", requests=[request])
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


def test_finishes_ride_along_and_are_answered_in_input_order(sql: Sql) -> None:
    for number in range(4):
        sql.enqueue(payload=number)
    claims = sql.take(n=4)
    response = sql.claim(
        finished=[
            failed(claims[3], "bad", retry_in_seconds=0),
            completed(claims[0], result={"ok": 1}, summary="fine"),
            released(claims[2], reason="quota", started=False),
        ],
        n=5,
    )
    ids = [claim["job"]["id"] for claim in claims]
    assert [(answer["job_id"], answer["status"], answer["state"]) for answer in response["finished"]] == [
        (ids[3], "ok", "pending"), (ids[0], "ok", "done"), (ids[2], "ok", "pending"),
    ]  # fmt: skip
    assert [claim["job"]["id"] for claim in response["claims"]] == [ids[2], ids[3]]
    check_ledger(sql)


@pytest.mark.parametrize(
    "request_",
    [
        {"queues": ["q"], "n": 0},
        {"queues": ["q"], "scope": "endpoint:nobody"},
        {"queues": ["q"], "scope": "endpoint:nobody", "request_id": "r"},
        {"queues": ["q"], "scope": "no scope", "request_id": "r"},
        {"queues": ["q"], "request_id": ""},
        {"queues": "q"},
        5,
        None,
    ],
    ids=str,
)
def test_a_finish_stands_whatever_is_wrong_with_the_claim_part(sql: Sql, request_: Any) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    answer = sql.call("claim", requests=[request_], finished=[completed(claim)])
    assert answer["finished"][0]["status"] == "ok"
    assert answer["responses"][0]["error"]["sqlstate"] in ("SG001", "SG002")
    assert sql.state(job) == "done"


def test_a_finish_stands_when_the_claim_part_breaks_in_the_middle(sql: Sql) -> None:
    done, waiting = sql.enqueue(), sql.enqueue("other")
    claim = sql.take_one()
    sql.do("create function public.broken() returns trigger language plpgsql as $$ begin raise 'disk on fire'; end $$")
    sql.do("create trigger broken before insert on sluicegate.attempt execute function public.broken()")
    answer = sql.call("claim", requests=[{"queues": ["other"]}], finished=[completed(claim)])
    assert answer["responses"][0]["error"]["message"] == "disk on fire"
    assert answer["responses"][0]["error"]["field"] is None
    assert (sql.state(done), sql.state(waiting)) == ("done", "pending")


def test_one_bad_finish_stops_no_other_and_each_is_answered(sql: Sql) -> None:
    jobs = [sql.enqueue() for _ in range(4)]
    claims = sql.take(n=4)
    bad: list[Any] = [
        5,
        None,
        {},
        {"job_id": "x", "lease_token": "t", "outcome": "completed"},
        {"job_id": 10**30, "lease_token": "t", "outcome": "completed"},
        {"job_id": 1.5, "lease_token": "t", "outcome": "completed"},
        {**completed(claims[1]), "outcome": "finished"},
        {**completed(claims[1]), "lease_token": None},
        {**failed(claims[1]), "retry_in_seconds": "soon"},
        {**failed(claims[1]), "retry_in_seconds": 10**400},
        {**failed(claims[1]), "retry": "maybe"},
        {**released(claims[1]), "not_before": "tomorrow"},
        {**released(claims[1]), "started": 0},
        {**completed(claims[1]), "result": "x" * 1_048_577},
        {**completed(claims[1]), "summary": 5},
        {**completed(claims[1]), "colour": "red"},
        {**completed(claims[1]), "scope": 5},
    ]
    want = [
        "finished", "finished", "job_id", "job_id", "job_id", "job_id", "outcome", "lease_token", "retry_in_seconds",
        "retry_in_seconds", "retry", "not_before", "started", "result", "summary", "colour", "scope",
    ]  # fmt: skip
    unknown = {"job_id": 999_999, "lease_token": "t", "outcome": "completed"}
    foreign = {**completed(claims[1]), "scope": "endpoint:nobody"}
    stale = {**completed(claims[2]), "lease_token": "stale"}
    answers = sql.claim("none", finished=[completed(claims[0]), *bad, unknown, foreign, stale, completed(claims[3])])[
        "finished"
    ]
    assert answers[0]["status"] == answers[-1]["status"] == "ok"
    assert [answer["field"] for answer in answers[1:-4]] == want
    assert {answer["status"] for answer in answers[1:-4]} == {"invalid_argument"}
    assert [answer["status"] for answer in answers[-4:-1]] == ["not_found", "not_found", "conflict"]
    assert all(answer["message"] for answer in answers[1:-1])
    assert [sql.state(job) for job in jobs] == ["done", "claimed", "claimed", "done"]
    check_ledger(sql)


def test_the_same_job_twice_in_one_batch_of_finishes_ends_once(sql: Sql) -> None:
    sql.enqueue()
    claim = sql.take_one()
    answers = sql.claim("none", finished=[completed(claim), completed(claim), failed(claim)])["finished"]
    assert [(answer["status"], answer["replayed"]) for answer in answers] == [
        ("ok", False), ("ok", True), ("conflict", False),
    ]  # fmt: skip
    check_ledger(sql)


def test_a_claim_that_is_rolled_back_never_was(sql: Sql) -> None:
    sql.enqueue()
    before = sql.contents()
    with sql.transaction():
        sql.claim(request_id="r")
    assert sql.contents() == before
    assert len(sql.take(request_id="r")) == 1


def test_the_largest_claim_takes_a_thousand(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 1200)
    claims = sql.take(n=1000)
    assert len({claim["job"]["id"] for claim in claims}) == len({claim["lease_token"] for claim in claims}) == 1000
    answers = sql.claim(n=1000, finished=[completed(claim) for claim in claims])
    assert {answer["status"] for answer in answers["finished"]} == {"ok"}
    assert len(answers["claims"]) == 200
    check_ledger(sql)


def test_a_finish_that_another_transaction_holds_up_is_to_be_sent_again_and_stops_no_other(
    sql: Sql, another: OpenSql
) -> None:
    sql.do("alter function sluicegate.claim set lock_timeout = '200ms'")
    jobs = [sql.enqueue() for _ in range(3)]
    claims = sql.take(n=3)
    other = another()
    with other.transaction():
        other.do("select from sluicegate.job where id = %s for update", jobs[1])
        answers = sql.claim("none", finished=[completed(claim) for claim in claims])["finished"]
    assert [answer["status"] for answer in answers] == ["ok", "unavailable", "ok"]
    assert answers[1]["message"]
    assert [sql.state(job) for job in jobs] == ["done", "claimed", "done"]
    assert sql.claim("none", finished=[completed(claims[1])])["finished"][0]["status"] == "ok"


def test_a_request_that_is_still_running_elsewhere_times_out_and_the_finishes_stand(sql: Sql, another: OpenSql) -> None:
    sql.do("alter function sluicegate.claim set lock_timeout = '200ms'")
    sql.enqueue()
    claim = sql.take_one()
    other = another()
    with other.transaction():
        other.claim("none-here", request_id="slow")
        other.claim("none-here", request_id="slower")
        requests = [{"queues": ["q"], "request_id": name} for name in ("slow", "free", "slower")]
        answer = sql.call("claim", requests=requests, finished=[completed(claim)])
    assert answer["finished"][0]["status"] == "ok"
    states = [response["error"] and response["error"]["sqlstate"] for response in answer["responses"]]
    assert states == ["55P03", None, "55P03"]
    assert lease(claim)["job_id"] == answer["finished"][0]["job_id"]


def test_a_single_request_raises_plainly_when_nothing_rides_along(sql: Sql) -> None:
    with pytest.raises(psycopg.Error) as caught:
        sql.claim(n=0)
    assert caught.value.sqlstate == "SG001"

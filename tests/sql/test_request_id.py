"""A request id makes enqueue and claim safe to repeat: the second call opens nothing more."""

from typing import Any

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger, completed, in_background, refused, wait_blocked


def expire(sql: Sql) -> None:
    sql.do("update sluicegate.request set created_at = created_at - interval '25 hours'")


def test_a_repeated_enqueue_gives_the_first_answer_and_adds_nothing(sql: Sql) -> None:
    first = sql.call("enqueue", queue="q", payload=1, request_id="r")
    sql.complete(sql.take_one())
    before = sql.contents()
    assert sql.call("enqueue", queue="q", payload=1, request_id="r") == first
    assert sql.contents() == before


def test_a_repeated_batch_says_that_it_was_one(sql: Sql) -> None:
    jobs = [{"queue": "q", "payload": n} for n in range(5)]
    first = sql.call("enqueue_many", jobs=jobs, request_id="r")
    again = sql.call("enqueue_many", jobs=jobs, request_id="r")
    assert (first.pop("replayed"), again.pop("replayed")) == (False, True)
    assert first == again
    assert sql.one("select count(*) from sluicegate.job") == 5


def test_the_time_zone_of_the_session_does_not_make_another_request(sql: Sql) -> None:
    query = "select sluicegate.enqueue('q', p_run_at => timestamptz '2030-01-01 00:00Z', p_request_id => 'r') -> 'id'"
    ids = set()
    for zone in ("UTC", "Asia/Kathmandu", "America/St_Johns"):
        sql.do(f"set timezone = '{zone}'")
        ids.add(sql.one(query))
    assert len(ids) == 1


def test_another_body_or_verb_under_the_same_id_is_a_conflict(sql: Sql) -> None:
    sql.enqueue(payload=1, request_id="enqueue")
    sql.take_one(request_id="claim")
    sql.enqueue(payload=1)
    calls: list[Any] = [
        lambda: sql.enqueue(payload=2, request_id="enqueue"),
        lambda: sql.enqueue(payload=1, priority=1, request_id="enqueue"),
        lambda: sql.enqueue_many([{"queue": "q"}], request_id="enqueue"),
        lambda: sql.claim(request_id="enqueue"),
        lambda: sql.claim(request_id="claim", n=2),
        lambda: sql.claim("q", "p", request_id="claim"),
        lambda: sql.claim(request_id="claim", lease_seconds=5),
        lambda: sql.enqueue(request_id="claim"),
    ]
    for call in calls:
        with refused(sql, "SG003", "request_id"):
            call()


def test_an_id_is_remembered_for_a_day_and_then_free(sql: Sql) -> None:
    first = sql.enqueue(payload=1, request_id="r")
    sql.do("update sluicegate.request set created_at = created_at - interval '23 hours 59 minutes'")
    assert sql.enqueue(payload=1, request_id="r") == first
    expire(sql)
    second = sql.enqueue(payload=2, request_id="r")
    assert second != first
    assert sql.enqueue(payload=2, request_id="r") == second


def test_ids_of_two_scopes_are_two_ids(sql: Sql) -> None:
    sql.do("insert into sluicegate.endpoint (owner_id, slug) select id, 'other' from sluicegate.owner")
    ids = {sql.enqueue(payload=s, scope=s, request_id="r") for s in ("endpoint:default", "endpoint:other")}
    assert len(ids) == 2
    assert sql.enqueue(payload="endpoint:other", scope="endpoint:other@local", request_id="r") in ids


def test_a_refused_enqueue_uses_up_no_id(sql: Sql) -> None:
    with refused(sql, "SG001", "priority"):
        sql.enqueue(priority=40_000, request_id="r")
    assert sql.enqueue(request_id="r")


def test_an_enqueue_that_was_rolled_back_leaves_its_id_free(sql: Sql) -> None:
    with sql.transaction():
        sql.enqueue(payload=1, request_id="r")
    assert sql.enqueue(payload=2, request_id="r")


def test_a_malformed_id_is_refused(sql: Sql) -> None:
    for request_id in ("", "x" * 129, "é" * 65):
        with refused(sql, "SG001", "request_id"):
            sql.enqueue(request_id=request_id)
        with refused(sql, "SG001", "request_id"):
            sql.enqueue_many([{"queue": "q"}], request_id=request_id)


def test_a_second_enqueue_with_the_same_id_waits_for_the_first(sql: Sql, another: OpenSql) -> None:
    first, second = another(), another()
    with first.transaction():
        job = first.enqueue(payload=1, request_id="r")
        waiting = in_background(lambda: second.enqueue(payload=1, request_id="r"))
        wait_blocked(sql, second.pid, by=first.pid)
        first.commit()
    assert waiting.result(30) == job
    with first.transaction():
        first.enqueue(payload=1, request_id="s")
        waiting = in_background(lambda: second.enqueue(payload=1, request_id="s"))
        wait_blocked(sql, second.pid, by=first.pid)
    waiting.result(30)
    assert sql.one("select count(*) from sluicegate.job") == 2


def test_a_repeated_claim_gives_its_open_claims_with_new_tokens_and_opens_nothing(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 5)
    first = sql.claim(n=3, request_id="r", lease_seconds=60)
    again = sql.claim(n=3, request_id="r", lease_seconds=60)
    assert (first["replayed"], again["replayed"], again["gone"], again["empty"]) == (False, True, [], False)
    for old, new in zip(first["claims"], again["claims"], strict=True):
        assert old["lease_token"] != new["lease_token"]
        assert {k: v for k, v in old.items() if not k.startswith("lease")} == {
            k: v for k, v in new.items() if not k.startswith("lease")
        }
        assert sql.heartbeat(old)["status"] == "conflict"
        assert sql.heartbeat(new)["status"] == "ok"
    assert check_ledger(sql) == 3


def test_claims_that_have_ended_meanwhile_are_listed_as_gone(sql: Sql) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 6)
    claims = sql.take(n=6, request_id="r")
    sql.complete(claims[0])
    sql.fail(claims[1])
    sql.release(claims[2])
    sql.lapse(jobs[3])
    sql.do("update sluicegate.job set priority = 11 where id = %s", jobs[2])
    assert sql.take_one()["job"]["id"] == jobs[3]
    sql.complete(claims[4])
    sql.do("delete from sluicegate.job where id = %s", jobs[4])
    again = sql.claim(n=6, request_id="r")
    assert [claim["job"]["id"] for claim in again["claims"]] == [jobs[5]]
    assert [(gone["job_id"], gone["state"]) for gone in again["gone"]] == [
        (jobs[0], "done"), (jobs[1], "scheduled"), (jobs[2], "pending"), (jobs[3], "claimed"), (jobs[4], "deleted"),
    ]  # fmt: skip
    check_ledger(sql)


def test_a_repeated_claim_renews_a_lease_that_has_lapsed_and_never_shortens_one(sql: Sql) -> None:
    a, b = sql.enqueue(), sql.enqueue()
    first = sql.claim(n=2, request_id="r", lease_seconds=60)["claims"]
    sql.lapse(a)
    sql.heartbeat(first[1], lease_seconds=3600)
    long = sql.job(b)["lease_expires_at"]
    again = sql.take(n=2, request_id="r", lease_seconds=60)
    assert sql.one("select lease_expires_at > clock_timestamp() from sluicegate.job where id = %s", a)
    assert sql.job(b)["lease_expires_at"] == long
    assert {sql.complete(claim)["status"] for claim in again} == {"ok"}


def test_the_old_token_dies_for_finishes_that_ride_along_too(sql: Sql) -> None:
    job = sql.enqueue()
    old = sql.take_one(request_id="r")
    new = sql.take_one(request_id="r")
    answers = sql.claim("none", finished=[completed(old), completed(new)])["finished"]
    assert [answer["status"] for answer in answers] == ["conflict", "ok"]
    assert sql.late_calls(job) == {"completed": 1}


def test_a_claim_that_got_nothing_looks_again_under_the_same_id(sql: Sql, another: OpenSql) -> None:
    assert sql.claim(request_id="r")["empty"] is True
    sql.enqueue()
    peer = another()
    with peer.transaction():
        peer.take_one()
        busy = sql.claim(request_id="r")
        assert (busy["claims"], busy["empty"]) == ([], False)
    assert len(sql.take(request_id="r")) == 1
    assert sql.claim(request_id="r")["replayed"] is True
    assert check_ledger(sql) == 1


def test_a_second_claim_with_the_same_id_waits_for_the_first_and_takes_over_its_answer(
    sql: Sql, another: OpenSql
) -> None:
    sql.enqueue_many([{"queue": "q"}] * 5)
    first, second = another(), another()
    with first.transaction():
        claims = first.take(n=2, request_id="r")
        waiting = in_background(lambda: second.take(n=2, request_id="r"))
        wait_blocked(sql, second.pid, by=first.pid)
        first.commit()
    again = waiting.result(30)
    assert [claim["attempt_id"] for claim in again] == [claim["attempt_id"] for claim in claims]
    assert check_ledger(sql) == 2


def test_one_id_twice_in_one_call_opens_once_and_the_last_answer_holds_the_tokens(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 3)
    request = {"queues": ["q"], "request_id": "r"}
    one, two = sql.call("claim", requests=[request, request])["responses"]
    assert (one["replayed"], two["replayed"]) == (False, True)
    assert sql.complete(one["claims"][0])["status"] == "conflict"
    assert sql.complete(two["claims"][0])["status"] == "ok"
    assert check_ledger(sql) == 1


def test_an_id_that_is_free_again_after_a_day_claims_anew(sql: Sql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 2)
    sql.take_one(request_id="r")
    expire(sql)
    assert sql.claim(request_id="r")["replayed"] is False
    assert check_ledger(sql) == 2

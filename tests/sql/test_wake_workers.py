"""Whatever gives workers something to do tells them, once a queue and commit, and nothing else does."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import psycopg
import pytest

from sluicegate.testing import advance_clock, freeze_clock
from tests.sql.budgets import ask, govern, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql

NOW = datetime(2026, 6, 10, 12, 10, tzinfo=UTC)


def mark(queue: str) -> str:
    return sha256(queue.encode()).hexdigest()[:16]


class Ear:
    """Listens as a worker does."""

    def __init__(self, listener: Sql, speaker: Sql) -> None:
        self._listener = listener
        self._speaker = speaker
        listener.do("listen sluicegate_jobs")

    def heard(self) -> list[str]:
        """The payloads since the last call."""
        self._speaker.do("notify sluicegate_jobs, 'that is all'")
        told: list[str] = []
        for notification in self._listener.connection.notifies(timeout=60):
            if notification.payload == "that is all":
                return told
            told.append(notification.payload)
        raise AssertionError("the last notification never came")


@pytest.fixture
def ear(sql: Sql, another: OpenSql) -> Ear:
    return Ear(another(), sql)


def take(sql: Sql, *, n: int = 1) -> list[Json]:
    claims: list[Json] = ask(sql, "q", n=n)["claims"]
    assert len(claims) == n
    return claims


def end(sql: Sql, claim: Json, verb: str = "complete", **fields: Any) -> Json:
    answer: Json = sql.call(verb, job_id=claim["job"]["id"], lease_token=claim["lease_token"], **fields)
    assert answer["status"] == "ok"
    return answer


def finish(claim: Json, outcome: str = "completed", **fields: Any) -> Json:
    return {"job_id": claim["job"]["id"], "lease_token": claim["lease_token"], "outcome": outcome, **fields}


def test_a_new_job_is_told_without_its_queue_s_name(sql: Sql, ear: Ear) -> None:
    sql.call("enqueue", queue="q", kind="of a queue that is new")
    assert ear.heard() == [mark("q")]
    sql.call("enqueue", queue="q")
    sql.call("enqueue", queue="q", tags=["the long way"])
    assert ear.heard() == [mark("q")] * 2


def test_many_jobs_are_told_once_a_queue(sql: Sql, ear: Ear) -> None:
    sql.enqueue_many({"queue": queue} for queue in "aabbab")
    assert sorted(ear.heard()) == sorted([mark("a"), mark("b")])
    with sql.connection.transaction():
        for _ in range(3):
            sql.call("enqueue", queue="a")
    assert ear.heard() == [mark("a")]


def test_what_is_rolled_back_is_not_told(sql: Sql, ear: Ear) -> None:
    with sql.connection.transaction(force_rollback=True):
        sql.call("enqueue", queue="q")
    assert ear.heard() == []


def test_what_adds_nothing_is_not_told(sql: Sql, ear: Ear) -> None:
    for function, jobs in (("enqueue", {"queue": "q", "dedup_key": "k"}), ("enqueue_many", {"jobs": [{"queue": "q"}]})):
        sql.call(function, **jobs, request_id=function)
        assert ear.heard() == [mark("q")]
        sql.call(function, **jobs, request_id=function)
        assert ear.heard() == [], "a repetition"
    sql.call("enqueue", queue="q", dedup_key="k")
    sql.call("enqueue_many", jobs=[{"queue": "q", "dedup_key": "k"}])
    assert ear.heard() == [], "a live job has the key"
    sql.call("enqueue_many", jobs=[{"queue": "q", "dedup_key": key} for key in "kl"])
    assert ear.heard() == [mark("q")], "one of two is new"


def test_the_caller_may_leave_it_to_itself(sql: Sql, ear: Ear) -> None:
    sql.call("enqueue", queue="q", wake=False)
    sql.call("enqueue", queue="q", wake=False, tags=["the long way"])
    sql.call("enqueue_many", jobs=[{"queue": "q"}], wake=False)
    assert ear.heard() == []
    assert sql.call("wake", queues=["q", "q", "no such queue"]) == {"queues": 1}
    assert ear.heard() == [mark("q")]
    assert sql.call("wake", queues=[]) == sql.call("wake", queues=None) == {"queues": 0}
    assert ear.heard() == []


@pytest.mark.parametrize("bulk", [False, True])
def test_a_payload_of_a_megabyte_is_told_as_any(sql: Sql, ear: Ear, bulk: bool) -> None:
    job = {"queue": "q" * 100, "payload": "x" * 1_000_000}
    sql.call("enqueue_many", jobs=[job]) if bulk else sql.call("enqueue", **job)
    assert ear.heard() == [mark("q" * 100)]


def test_jobs_that_wait_again_are_told(sql: Sql, ear: Ear) -> None:
    freeze_clock(sql.connection, NOW)
    sql.enqueue_many({"queue": "q"} for _ in range(5))
    ear.heard()
    released, failed, dead, late, later = take(sql, n=5)
    end(sql, released, "release")
    assert ear.heard() == [mark("q")]
    end(sql, failed, "fail", error="again at once", retry_in_seconds=0)
    assert ear.heard() == [mark("q")]
    end(sql, dead, "fail", error="never again", retry=False)
    end(sql, later, "release", not_before=NOW + timedelta(hours=9))
    assert ear.heard() == [], "they are not due"
    sql.call("retry", job_id=dead["job"]["id"])
    assert ear.heard() == [mark("q")]
    advance_clock(sql.connection, timedelta(hours=1))
    assert sql.call("reap")["requeued"] == 1
    assert ear.heard() == [mark("q")], f"{late['job']['id']} was reaped"
    assert sql.call("reap")["requeued"] == 0
    assert ear.heard() == []


def test_ends_and_claims_of_a_queue_without_a_limit_tell_nobody(sql: Sql, ear: Ear) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(4))
    govern(sql, "q", window(100))
    ear.heard()
    first, second = take(sql, n=2)
    end(sql, first)
    sql.call("claim", requests=[], finished=[finish(second)])
    assert ear.heard() == []


# A full queue of two slots, three more jobs waiting.
@pytest.fixture
def full(sql: Sql, ear: Ear) -> list[Json]:
    sql.enqueue_many({"queue": "q"} for _ in range(5))
    govern(sql, "q", max_in_flight=2)
    claims = take(sql, n=2)
    assert ask(sql, "q")["deferred"][0]["reason"] == "in_flight_full"
    ear.heard()
    return claims


FREE: dict[str, Callable[[Sql, Json], object]] = {
    "complete": end,
    "fail": lambda sql, claim: end(sql, claim, "fail", error="no", retry=False),
    "a finish alone": lambda sql, claim: sql.call("claim", requests=[], finished=[finish(claim)]),
    "a finish with a claim of another queue": lambda sql, claim: sql.call(
        "claim", requests=[{"queues": ["other"], "n": 9}], finished=[finish(claim)]
    ),
}


@pytest.mark.parametrize("way", FREE)
def test_a_freed_slot_is_told(sql: Sql, ear: Ear, full: list[Json], way: str) -> None:
    sql.call("enqueue", queue="other")
    ear.heard()
    FREE[way](sql, full[0])
    assert ear.heard() == [mark("q")]
    take(sql)


def test_a_slot_that_the_same_call_takes_again_is_not_told(sql: Sql, ear: Ear, full: list[Json]) -> None:
    answer = sql.call("claim", requests=[{"queues": ["q"], "n": 1}], finished=[finish(full[0])])
    assert len(answer["responses"][0]["claims"]) == 1
    assert ear.heard() == []
    (again,) = answer["responses"][0]["claims"]
    answer = sql.call("claim", requests=[{"queues": ["q"], "n": 1}], finished=[finish(full[1]), finish(again)])
    assert len(answer["responses"][0]["claims"]) == 1
    assert ear.heard() == [mark("q")], "two were freed and one taken"


def test_a_freed_slot_that_nobody_waits_for_is_not_told(sql: Sql, ear: Ear, full: list[Json]) -> None:
    sql.do("delete from sluicegate.job where state = 'pending'")
    sql.call("claim", requests=[], finished=[finish(full[0])])
    assert ear.heard() == []
    end(sql, full[1])
    assert ear.heard() == [mark("q")], "its transaction may go on, and a job may come before its end"


def test_a_limit_that_only_counts_frees_nothing(sql: Sql, ear: Ear) -> None:
    sql.enqueue_many({"queue": "q"} for _ in range(5))
    govern(sql, "q", max_in_flight=1, in_flight_mode="shadow")
    ear.heard()
    end(sql, take(sql)[0])
    assert ear.heard() == []


def test_a_lapsed_claim_that_is_ended_tells_of_its_slot(sql: Sql, ear: Ear) -> None:
    freeze_clock(sql.connection, NOW)
    sql.enqueue_many({"queue": "q", "max_attempts": 1} for _ in range(2))
    govern(sql, "q", max_in_flight=1)
    ear.heard()
    take(sql)
    advance_clock(sql.connection, timedelta(hours=1))
    assert sql.call("reap")["dead_lettered"] == 1
    assert ear.heard() == [mark("q")]


CLOSED: dict[str, Json] = {
    "paused": {"paused": True},
    "paused for an hour": {"paused": True, "paused_until": "2026-06-10T13:10:00Z"},
    "used up": {"limits": [window(1)]},
}


def close(sql: Sql, policy: Json) -> None:
    freeze_clock(sql.connection, NOW)
    sql.enqueue_many({"queue": "q"} for _ in range(2))
    fields = dict(policy)
    govern(sql, "q", *fields.pop("limits", ()), **fields)
    if not policy.get("paused"):
        take(sql)
    assert ask(sql, "q")["deferred"]


@pytest.mark.parametrize("policy", CLOSED)
def test_a_closed_queue_wakes_nobody(sql: Sql, ear: Ear, policy: str) -> None:
    close(sql, CLOSED[policy])
    ear.heard()
    for _ in range(20):
        sql.call("enqueue", queue="q")
    sql.call("enqueue_many", jobs=[{"queue": "q"}])
    assert ear.heard() == []
    with sql.connection.transaction():
        sql.do("select pg_sleep(0.15)")
        sql.call("enqueue", queue="q")
    assert ear.heard() == [mark("q")], "a long transaction: it may open before the commit"
    for function, jobs in (("enqueue", {"queue": "q"}), ("enqueue_many", {"jobs": [{"queue": "q"}]})):
        sql.call(function, **jobs, wake=None)
        assert ear.heard() == [mark("q")], "the caller does not know how long its transaction goes on"


def test_a_queue_that_opens_within_the_second_is_told(sql: Sql, ear: Ear) -> None:
    close(sql, {"paused": True, "paused_until": "2026-06-10T12:10:00.9Z"})
    ear.heard()
    sql.call("enqueue", queue="q")
    assert ear.heard() == [mark("q")]
    sql.call("clear_admission_policy", queue="q")
    govern(sql, "q", window(1, "hour"))
    take(sql)
    advance_clock(sql.connection, timedelta(minutes=49, seconds=58))
    sql.call("enqueue", queue="q")
    assert ear.heard() == []
    advance_clock(sql.connection, timedelta(seconds=1, milliseconds=500))
    sql.call("enqueue", queue="q")
    assert ear.heard() == [mark("q")]


def test_a_full_queue_tells_of_new_jobs_since_it_may_be_free_at_any_moment(
    sql: Sql, ear: Ear, full: list[Json]
) -> None:
    sql.call("enqueue", queue="q")
    assert ear.heard() == [mark("q")]
    assert full


def test_neither_adding_nor_finishing_depends_on_the_policies(
    sql: Sql, ear: Ear, full: list[Json], another: OpenSql
) -> None:
    holder = another()
    with holder.connection.transaction():
        holder.do("lock table sluicegate.policy in access exclusive mode")
        sql.call("enqueue", queue="q")
        end(sql, full[0])
        assert ear.heard() == [mark("q")] * 2, "in doubt they are told"


def test_the_looks_at_the_policy_are_what_these_tests_judge(sql: Sql, ear: Ear, full: list[Json]) -> None:
    """With each of them broken, what is told is something else."""
    sql.replace("wake_for_room", ("p.max_in_flight > 0", "p.max_in_flight is null"))
    end(sql, full[0])
    assert ear.heard() == []
    sql.restore("wake_for_room")
    sql.replace("stays_closed", ("select p.* into strict", "return false;\n    select p.* into strict"))
    sql.call("pause_queue", queue="q")
    sql.call("enqueue", queue="q")
    assert ear.heard() == [mark("q")]


def test_a_producer_may_wake_and_a_stranger_may_not(sql: Sql) -> None:
    for role, allowed in (("sluicegate_producer", True), ("sluicegate_worker", True), ("sluicegate_reader", False)):
        found = sql.one("select to_regrole(%s)::text", role)
        if found is None:
            continue
        assert (
            sql.one("select has_function_privilege(%s, 'sluicegate.wake(text[], text)', 'execute')", role) is allowed
        ), role
    with pytest.raises(psycopg.errors.Error):
        sql.call("wake", queues=["q"], scope="endpoint:nowhere")

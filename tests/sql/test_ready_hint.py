"""The hint where a ready index begins: it saves work, and never hides a job for long nor makes a queue look empty."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, check_ledger

AGED = ("ready", "ready_from", "ready_below", "insert_jobs", "enqueue", "candidates")


@pytest.fixture(autouse=True)
def hints_last(sql: Sql) -> None:
    """Hints live for an hour instead of a second, so that no test depends on its speed."""
    for function in AGED:
        sql.replace(function, ("interval '1 second'", "interval '1 hour'"))


def plant(sql: Sql, job_id: int, *, looked_at: str = "clock_timestamp()") -> None:
    """Say that the queue of this job begins at it."""
    sql.do(
        "insert into sluicegate.ready_cursor select queue_id, class, priority, run_at, id,"
        f" {looked_at} from sluicegate.job where id = %s"
        " on conflict (queue_id, class) do update set (priority, run_at, id, looked_at)"
        " = (excluded.priority, excluded.run_at, excluded.id, excluded.looked_at)",
        job_id,
    )


def is_alive(sql: Sql) -> bool:
    return bool(sql.one("select exists (select from sluicegate.ready_cursor where looked_at > '-infinity')"))


def taken(sql: Sql, *queues: str, n: int = 1) -> list[int]:
    return [claim["job"]["id"] for claim in sql.take(*queues, n=n)]


def test_a_claim_starts_at_the_hint(sql: Sql) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 5)
    plant(sql, jobs[2])
    assert taken(sql) == [jobs[2]]
    sql.enqueue("other")
    assert taken(sql, "q", "other") == [jobs[3]]


def test_a_claim_that_finds_too_few_behind_the_hint_looks_from_the_beginning_and_keeps_the_order(sql: Sql) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 5)
    plant(sql, jobs[3])
    assert taken(sql, n=4) == jobs[:4]
    more = sql.enqueue_many([{"queue": queue} for queue in ("q", "p") * 3])
    plant(sql, more[4])
    assert taken(sql, "q", "p", n=100) == [jobs[4], *more]
    check_ledger(sql)


def test_a_hint_behind_every_job_never_makes_a_queue_look_empty(sql: Sql) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 3)
    last = sql.enqueue(priority=100)
    plant(sql, last)
    sql.call("cancel", job_id=last)
    assert taken(sql) == [jobs[0]]
    assert taken(sql, "q", "unknown") == [jobs[1]]
    response = sql.claim(n=2)
    assert len(response["claims"]) == 1
    assert sql.claim()["empty"] is True


def enqueued(sql: Sql, job: int) -> int:
    return sql.enqueue(priority=1)


def enqueued_many(sql: Sql, job: int) -> int:
    return sql.enqueue_many([{"queue": "q", "priority": 20}, {"queue": "q", "priority": 1}])[1]


def released(sql: Sql, job: int) -> int:
    sql.release(sql.call("claim_job", job_id=job)["claim"])
    return job


def failed(sql: Sql, job: int) -> int:
    sql.fail(sql.call("claim_job", job_id=job)["claim"], retry_in_seconds=0.0)
    return job


def finished_with_a_claim(sql: Sql, job: int) -> int:
    claim = sql.call("claim_job", job_id=job)["claim"]
    item = {"job_id": job, "lease_token": claim["lease_token"], "outcome": "released"}
    sql.claim("unknown", finished=[item])
    return job


def retried(sql: Sql, job: int) -> int:
    sql.call("cancel", job_id=job)
    sql.call("retry", job_id=job)
    return job


def reaped(sql: Sql, job: int) -> int:
    sql.call("claim_job", job_id=job)
    sql.lapse(job)
    sql.call("reap")
    return job


WAYS_BACK: list[Callable[[Sql, int], int]] = [
    enqueued, enqueued_many, released, failed, finished_with_a_claim, retried, reaped,
]  # fmt: skip


def test_a_job_that_becomes_ready_before_the_hint_takes_it_away(sql: Sql) -> None:
    for way in WAYS_BACK:
        first = sql.enqueue(priority=2)
        others = sql.enqueue_many([{"queue": "q"}] * 2)
        plant(sql, others[0])
        want = way(sql, first)
        assert not is_alive(sql), way.__name__
        assert taken(sql) == [want], way.__name__
        sql.do("delete from sluicegate.job where state <> 'claimed'")


def test_a_job_that_becomes_ready_behind_the_hint_leaves_it(sql: Sql) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 3)
    plant(sql, jobs[1])
    sql.enqueue(priority=11)
    sql.enqueue("other", priority=-5)
    assert is_alive(sql)
    assert taken(sql) == [jobs[1]]


def test_a_job_whose_enqueue_was_still_open_is_found_when_the_hint_is_old(sql: Sql, another: OpenSql) -> None:
    producer = another()
    sql.call("cancel", job_id=sql.enqueue())
    with producer.transaction():
        early = producer.enqueue(priority=1)
        jobs = sql.enqueue_many([{"queue": "q"}] * 3)
        plant(sql, jobs[0])
        producer.commit()
    assert taken(sql) == [jobs[0]]
    assert taken(sql, n=2) == [jobs[1], jobs[2]]
    assert taken(sql) == [early]
    sql.do("delete from sluicegate.ready_cursor")
    later = sql.enqueue_many([{"queue": "q"}] * 2)
    with producer.transaction():
        early = producer.enqueue(priority=1)
        plant(sql, later[0], looked_at="clock_timestamp() - interval '61 minutes'")
        producer.commit()
    assert taken(sql) == [early]


def test_a_shipped_hint_lives_for_a_second_at_most(sql: Sql) -> None:
    for function in AGED:
        sql.restore(function)
    jobs = sql.enqueue_many([{"queue": "q"}] * 3)
    plant(sql, jobs[2], looked_at="clock_timestamp() - interval '1 second'")
    assert taken(sql) == [jobs[0]]
    assert taken(sql, "q", "unknown") == [jobs[1]]


def test_a_hint_from_the_future_is_ignored_as_when_the_clock_was_set_back(sql: Sql) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 3)
    plant(sql, jobs[2], looked_at="clock_timestamp() + interval '10 minutes'")
    assert taken(sql) == [jobs[0]]
    assert taken(sql, "q", "unknown") == [jobs[1]]


def test_due_scheduled_jobs_are_found_whatever_the_hint_says(sql: Sql) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 3)
    due = sql.enqueue(priority=1)
    sql.do("update sluicegate.job set state = 'scheduled' where id = %s", due)
    plant(sql, jobs[2])
    assert taken(sql) == [due]


def test_a_lapsed_job_before_the_hint_of_the_leases_is_not_called_empty_and_is_found_when_the_hint_is_old(
    sql: Sql,
) -> None:
    job, later = sql.enqueue_many([{"queue": "q"}] * 2)
    claims = sql.take(n=2)
    sql.lapse(job)
    sql.do("insert into sluicegate.lapse_hint select id, clock_timestamp(), clock_timestamp() from sluicegate.queue")
    response = sql.claim()
    assert (response["claims"], response["empty"]) == ([], False)
    sql.do("update sluicegate.job set lease_expires_at = clock_timestamp() where id = %s", later)
    assert taken(sql, n=5) == [later], "what lapses after the hint is seen at once"
    sql.do("update sluicegate.lapse_hint set looked_at = clock_timestamp() - interval '61 minutes'")
    assert taken(sql) == [job]
    assert sql.complete(claims[0])["status"] == "conflict"
    check_ledger(sql)


def hint(sql: Sql) -> Any:
    return sql.one("select id from sluicegate.ready_cursor")


def test_the_hint_is_the_first_job_that_is_visible_as_pending_even_while_a_peer_holds_it(
    sql: Sql, another: OpenSql
) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 3)
    sql.take_one()
    look = "select sluicegate.ready_looked(id, 'mid') from sluicegate.queue"
    peer = another()
    with peer.transaction():
        peer.take_one()
        sql.do(look)
        assert hint(sql) == jobs[1]
    assert taken(sql) == [jobs[1]], "the peer rolled back, and its job is first again"


def test_a_fresh_hint_is_left_and_an_old_one_moved(sql: Sql) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 3)
    look = "select sluicegate.ready_looked(id, 'mid') from sluicegate.queue"
    plant(sql, jobs[2])
    sql.do(look)
    assert hint(sql) == jobs[2]
    plant(sql, jobs[2], looked_at="clock_timestamp() - interval '1 minute'")
    sql.do(look)
    assert hint(sql) == jobs[0]
    sql.do("delete from sluicegate.job")
    sql.do("update sluicegate.ready_cursor set looked_at = '-infinity'")
    sql.do(look)
    assert hint(sql) == jobs[0], "without a job there is nothing to note"


def test_nobody_waits_for_a_hint_that_an_open_transaction_moves(sql: Sql, another: OpenSql) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 3)
    plant(sql, jobs[1])
    producer = another()
    sql.do("set lock_timeout = '2s'")
    with producer.transaction():
        producer.enqueue(priority=1)
        second = sql.enqueue(priority=2)
        assert taken(sql) == [jobs[1]]
        sql.do("select sluicegate.ready_looked(id, 'mid') from sluicegate.queue")
        assert taken(sql, n=3) == [second, jobs[0], jobs[2]]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_job_enqueued_under_an_old_snapshot_never_fails_for_a_hint_that_moved_meanwhile(
    sql: Sql, another: OpenSql, level: str
) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 3)
    plant(sql, jobs[1])
    producer = another()
    producer.do(f"begin isolation level {level}")
    assert producer.one("select count(*) from sluicegate.ready_cursor") == 1
    plant(sql, jobs[2])
    first, second = producer.enqueue_many([{"queue": "q", "priority": -5}] * 2)
    producer.commit()
    assert taken(sql) == [jobs[2]], "the hint lives on, for a second at most"
    sql.do("update sluicegate.ready_cursor set looked_at = '-infinity'")
    assert taken(sql, n=3) == [first, second, jobs[0]]

"""Enqueues against each other: one live job a key, whatever the order and the timing."""

from collections.abc import Callable

import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Crowd, Sql, completed, in_background, wait_blocked
from tests.support.counts import rounds

# Between adding the jobs and looking up those whose key was taken.
PAUSE = (
    "    if v_faults is not null then\n",
    "    perform pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1);\n    if v_faults is not null then\n",
)


def test_the_second_enqueue_of_a_key_waits_for_the_first_and_gets_its_job(sql: Sql, another: OpenSql) -> None:
    sql.enqueue()
    first, second = another(), another()
    with first.transaction():
        job = first.enqueue(dedup_key="k")
        waiting = in_background(lambda: second.call("enqueue", queue="q", dedup_key="k"))
        wait_blocked(sql, second.pid, by=first.pid)
        first.commit()
    assert waiting.result(30) == {"id": job, "created": False, "state": "pending", "queue": "q"}
    with first.transaction():
        first.enqueue(dedup_key="l")
        waiting = in_background(lambda: second.call("enqueue", queue="q", dedup_key="l"))
        wait_blocked(sql, second.pid, by=first.pid)
    assert waiting.result(30)["created"] is True, "the first one rolled back"


def test_an_enqueue_that_meets_a_job_being_finished_waits_and_adds_a_new_one(sql: Sql, another: OpenSql) -> None:
    old = sql.enqueue(dedup_key="k")
    claim = sql.take_one()
    worker, producer = another(), another()
    with worker.transaction():
        worker.complete(claim)
        waiting = in_background(lambda: producer.call("enqueue", queue="q", dedup_key="k"))
        wait_blocked(sql, producer.pid, by=worker.pid)
        worker.commit()
    answer = waiting.result(30)
    assert answer["created"] is True
    assert answer["id"] != old


def test_twenty_callers_with_one_key_add_one_job(sql: Sql, crowd: Callable[[int], Crowd]) -> None:
    callers = crowd(20)
    for number in range(rounds(5, 100)):
        answers = callers.all(lambda member, _, key=f"k{number}": member.call("enqueue", queue="q", dedup_key=key))  # type: ignore[misc]
        assert sum(answer["created"] for answer in answers) == 1
        assert len({answer["id"] for answer in answers}) == 1


def test_a_key_that_is_enqueued_and_finished_all_the_time_never_has_two_live_jobs(
    sql: Sql, crowd: Callable[[int], Crowd]
) -> None:
    callers = crowd(6)
    sql.enqueue()

    def churn(member: Sql, number: int) -> tuple[int, int]:
        created = done = 0
        for step in range(rounds(30, 500)):
            if number % 2:
                jobs = [{"queue": "k", "dedup_key": key} for key in (("a", "b") if step % 2 else ("b", "a"))]
                created += sum(job["created"] for job in member.call("enqueue_many", jobs=jobs)["jobs"])
            else:
                created += member.call("enqueue", queue="k", dedup_key="a")["created"]
            for claim in member.take("k", n=2):
                done += member.complete(claim)["status"] == "ok"
        return created, done

    created, done = (sum(column) for column in zip(*callers.all(churn), strict=True))
    live = sql.one("select count(*) from sluicegate.job where dedup_key is not null and state <> 'done'")
    assert created == done + live
    assert live <= 2


@pytest.mark.parametrize("batch", [False, True])
def test_a_key_that_is_freed_while_its_job_is_looked_up_is_used_after_all(
    sql: Sql, another: OpenSql, batch: bool
) -> None:
    old = sql.enqueue(dedup_key="k")
    claim = sql.take_one()
    sql.replace("insert_jobs", PAUSE)
    gate, producer = another(), another()
    gate.do("select pg_advisory_lock(1)")
    jobs = [{"queue": "q"}, {"queue": "q", "dedup_key": "k"}, {"queue": "q", "dedup_key": "l"}]
    waiting = in_background(
        lambda: (
            producer.call("enqueue_many", jobs=jobs, request_id="r")["jobs"]
            if batch
            else [producer.call("enqueue", queue="q", dedup_key="k", request_id="r")]
        )
    )
    wait_blocked(sql, producer.pid, by=gate.pid)
    sql.complete(claim)
    gate.do("select pg_advisory_unlock(1)")
    answers = waiting.result(30)
    assert all(answer["created"] for answer in answers)
    assert old not in [answer["id"] for answer in answers]
    assert sql.one("select count(*) from sluicegate.job where state = 'pending'") == len(answers)
    again = producer.call("enqueue_many", jobs=jobs, request_id="r")["jobs"] if batch else answers
    assert again == answers


def test_a_batch_that_starts_again_lets_go_of_its_keys_so_that_no_other_batch_deadlocks_with_it(
    sql: Sql, another: OpenSql
) -> None:
    sql.enqueue(dedup_key="b")
    claim = sql.take_one()
    sql.replace("insert_jobs", PAUSE)
    gate, first, second = another(), another(), another()
    gate.do("select pg_advisory_lock(1)")
    jobs = [{"queue": "q", "dedup_key": "b"}, {"queue": "q", "dedup_key": "z"}]
    one = in_background(lambda: first.call("enqueue_many", jobs=jobs)["jobs"])
    wait_blocked(sql, first.pid, by=gate.pid)
    sql.complete(claim)
    # The first holds z and has not got b; the second gets b and waits for z.
    two = in_background(lambda: second.call("enqueue_many", jobs=jobs)["jobs"])
    wait_blocked(sql, second.pid, by=first.pid)
    gate.do("select pg_advisory_unlock(1)")
    answers = [one.result(30), two.result(30)]
    assert len({job["id"] for answer in answers for job in answer}) == 2
    assert sum(job["created"] for answer in answers for job in answer) == 2


@pytest.mark.parametrize("naive", [False, True])
def test_batches_take_their_keys_in_one_order_whatever_the_order_of_their_jobs(
    sql: Sql, another: OpenSql, naive: bool
) -> None:
    sql.enqueue()
    if naive:
        sql.replace("insert_jobs", ("order by i.dedup_key, i.id", "order by i.id"))
    holder, forth, back = another(), another(), another()
    calls = []
    with holder.transaction():
        holder.enqueue(dedup_key="a")
        for caller, keys in ((forth, "abc"), (back, "cba")):
            jobs = [{"queue": "q", "dedup_key": key} for key in keys]
            calls.append(in_background(lambda c=caller, j=jobs: c.call("enqueue_many", jobs=j)["jobs"]))  # type: ignore[misc]
            wait_blocked(sql, caller.pid, by=holder.pid)
        probe = another()
        with probe.transaction():
            probe.do("set local lock_timeout = '300ms'")
            taken = in_background(lambda: probe.enqueue(dedup_key="c"))
            assert (taken.exception(30) is not None) is naive
    if not naive:
        answers = [call.result(30) for call in calls]
        assert sorted(sum(job["created"] for job in answer) for answer in answers) == [0, 3]


def test_new_queues_are_made_in_one_order_whatever_the_order_of_the_jobs(sql: Sql, another: OpenSql) -> None:
    holder, forth, back = another(), another(), another()
    calls = []
    with holder.transaction():
        holder.enqueue("a")
        for caller, names in ((forth, "abc"), (back, "cba")):
            jobs = [{"queue": name} for name in names]
            calls.append(in_background(lambda c=caller, j=jobs: c.call("enqueue_many", jobs=j)["jobs"]))  # type: ignore[misc]
            wait_blocked(sql, caller.pid, by=holder.pid)
        probe = another()
        with probe.transaction():
            probe.do("set local lock_timeout = '2s'")
            probe.enqueue("c")
    for call in calls:
        assert all(job["created"] for job in call.result(30))
    assert sql.one("select count(*) from sluicegate.queue") == 3


def test_eight_producers_and_workers_lose_nothing(sql: Sql, crowd: Callable[[int], Crowd]) -> None:
    callers = crowd(8)
    each = rounds(60, 1000)
    sql.enqueue("seed")

    def run(member: Sql, number: int) -> set[int]:
        done: set[int] = set()
        if number < 4:
            for step in range(each):
                member.enqueue("q", [number, step], priority=step % 3)
            return done
        while len(done) < each:
            claims = member.take("q", n=min(5, each - len(done)))
            answers = member.claim("none", finished=[completed(claim) for claim in claims])["finished"]
            assert all(answer["status"] == "ok" and not answer["replayed"] for answer in answers)
            done |= {claim["job"]["id"] for claim in claims}
        return done

    done = callers.all(run)[4:]
    assert len(set().union(*done)) == sum(map(len, done)) == 4 * each

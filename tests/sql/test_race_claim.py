"""Claims against claims: each job goes to one caller, and no caller waits for another."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import Crowd, Json, Sql, check_ledger, completed, in_background, lease, wait_blocked
from tests.support.counts import rounds


def test_one_job_and_fifty_callers_have_one_winner_every_time(sql: Sql, crowd: Callable[[int], Crowd]) -> None:
    callers = crowd(50)
    for number in range(rounds(20, 500)):
        # A queue that has never been used, and one that has.
        queue = f"fresh {number}".replace(" ", "-") if number % 2 else "used"
        job = sql.enqueue(queue)
        answers = callers.all(lambda member, _, queue=queue: member.claim(queue))  # type: ignore[misc]
        winners = [answer for answer in answers if answer["claims"]]
        assert [answer["claims"][0]["job"]["id"] for answer in winners] == [job]
        assert all(answer["error"] is None for answer in answers)
        sql.complete(winners[0]["claims"][0])
    assert check_ledger(sql) == rounds(20, 500)


def test_one_job_claimed_by_id_by_twenty_callers_has_one_winner(sql: Sql, crowd: Callable[[int], Crowd]) -> None:
    callers = crowd(20)
    for number in range(rounds(5, 100)):
        job = sql.enqueue()
        if number % 2:
            sql.take_one()
            sql.lapse(job)
        answers = callers.all(lambda member, _, job=job: member.call("claim_job", job_id=job))  # type: ignore[misc]
        assert sorted(answer["status"] for answer in answers) == ["conflict"] * 19 + ["ok"]
    check_ledger(sql)


def test_batches_of_eight_connections_never_share_a_job(sql: Sql, crowd: Callable[[int], Crowd]) -> None:
    callers = crowd(8)
    count = rounds(1_200, 20_000)
    for first in range(0, count, 10_000):
        sql.enqueue_many({"queue": f"q{n % 3}", "priority": n % 5} for n in range(first, min(first + 10_000, count)))
    sql.do("update sluicegate.job set state = 'scheduled' where id % 3 = 0")

    def drain(member: Sql, number: int) -> list[int]:
        got: list[int] = []
        queues = ["q0", "q1", "q2"] if number % 2 else [f"q{number // 2 % 3}"]
        while True:
            response = member.claim(*queues, n=1 + (len(got) * 7 + number) % 40)
            got += [claim["job"]["id"] for claim in response["claims"]]
            if response["empty"]:
                return got

    taken = [job for got in callers.all(drain) for job in got]
    assert len(taken) == len(set(taken)) == count
    assert check_ledger(sql) == count


@pytest.mark.parametrize("queues", [("q",), ("q", "p")], ids=["one queue", "two queues"])
def test_no_claim_waits_for_another_and_none_holds_an_admission_lock(
    sql: Sql, another: OpenSql, queues: tuple[str, ...]
) -> None:
    for queue in queues:
        sql.enqueue_many([{"queue": queue}] * 3)
    first = another()
    sql.do("set lock_timeout = '1ms'")
    with first.transaction():
        held = {claim["job"]["id"] for claim in first.take(*queues, n=2)}
        locks = sql.rows("select locktype, mode from pg_locks where pid = %s and granted", first.pid)
        assert {lock["locktype"] for lock in locks} <= {"relation", "virtualxid", "transactionid"}
        assert {lock["mode"] for lock in locks if lock["locktype"] == "relation"} <= {
            "AccessShareLock", "RowShareLock", "RowExclusiveLock",
        }  # fmt: skip
        rest = {claim["job"]["id"] for claim in sql.take(*queues, n=100)}
        assert len(rest) == 3 * len(queues) - 2
        assert not rest & held
        response = sql.claim(*queues)
        assert (response["claims"], response["empty"]) == ([], False)


def test_a_claim_that_waits_for_its_rows_would_be_seen_waiting(sql: Sql, another: OpenSql) -> None:
    sql.enqueue()
    sql.replace("ready", ("skip locked", ""))
    first, second = another(), another()
    with first.transaction():
        first.take_one()
        waiting = in_background(second.claim)
        wait_blocked(sql, second.pid, by=first.pid)
    assert len(waiting.result(30)["claims"]) == 1


def test_a_claim_that_does_not_lock_its_job_would_be_seen_to_hand_it_out_twice(sql: Sql, another: OpenSql) -> None:
    job = sql.enqueue()
    sql.replace("ready", ("for no key update skip locked", ""))
    first, second = another(), another()
    with first.transaction():
        first.take_one()
        waiting = in_background(second.claim)
        wait_blocked(sql, second.pid, by=first.pid)
        first.commit()
    assert len(waiting.result(30)["claims"]) == 1
    assert sql.job(job)["attempts_total"] == 2
    with pytest.raises(AssertionError):
        check_ledger(sql)


LOOK_AGAIN = ("j.state || '' = 'scheduled' and j.run_at <= p_now", "j.state || '' = 'scheduled'")


@pytest.mark.parametrize("naive", [False, True])
def test_a_job_that_goes_back_to_waiting_while_a_claim_looks_is_not_taken_before_its_time(
    sql: Sql, another: OpenSql, naive: bool
) -> None:
    job = sql.enqueue()
    sql.enqueue("p", run_at=datetime.now(UTC) + timedelta(days=1))
    # The heads are read first and locked by a second statement; stop a claim inside the first one.
    sql.replace("ready_from", ("begin\n", "begin\n    perform pg_advisory_xact_lock_shared(1);\n"))
    if naive:
        sql.replace("ready_merged", LOOK_AGAIN)
    gate, looker = another(), another()
    gate.do("select pg_advisory_lock(1)")
    waiting = in_background(lambda: looker.claim("q", "p", n=5))
    wait_blocked(sql, looker.pid, by=gate.pid)
    claim = sql.call("claim_job", job_id=job)["claim"]
    assert sql.fail(claim, retry_in_seconds=3600.0)["state"] == "scheduled"
    gate.do("select pg_advisory_unlock(1)")
    response = waiting.result(30)
    assert [claim["job"]["id"] for claim in response["claims"]] == ([job] if naive else [])
    assert response["empty"] is not naive


def test_a_lapsed_job_is_taken_over_once_by_eight_callers(sql: Sql, crowd: Callable[[int], Crowd]) -> None:
    callers = crowd(8)
    # Every claim that ends spent leases looks where the next one stands, as it does after a long scan.
    sql.replace("candidates", ("> 1000 + 10 * p_n", "> 0"))
    for _ in range(rounds(10, 200)):
        jobs = sql.enqueue_many([{"queue": "q", "max_attempts": 2}] * 3)
        sql.take(n=3)
        sql.lapse(*jobs)
        answers = callers.all(lambda member, _: member.take(n=2))
        taken = [claim["job"]["id"] for claims in answers for claim in claims]
        assert sorted(taken) == jobs
        sql.lapse(*jobs)
        assert not any(callers.all(lambda member, _: member.take(n=2)))
        assert {sql.state(job) for job in jobs} == {"failed"}
    check_ledger(sql)


def test_a_heartbeat_that_comes_first_saves_the_lease_and_a_takeover_that_comes_first_ends_it(
    sql: Sql, another: OpenSql
) -> None:
    job = sql.enqueue()
    claim = sql.take_one()
    holder, taker = another(), another()
    sql.lapse(job)
    with holder.transaction():
        assert holder.heartbeat(claim)["status"] == "ok"
        response = taker.claim()
        assert (response["claims"], response["empty"]) == ([], False)
        holder.commit()
    assert taker.claim()["empty"] is True
    sql.lapse(job)
    with taker.transaction():
        assert len(taker.take()) == 1
        late = in_background(lambda: holder.heartbeat(claim))
        wait_blocked(sql, holder.pid, by=taker.pid)
        taker.commit()
    assert late.result(30)["status"] == "conflict"
    check_ledger(sql)


def test_claims_with_finishes_drain_a_queue_from_eight_connections(sql: Sql, crowd: Callable[[int], Crowd]) -> None:
    callers = crowd(8)
    count = rounds(600, 10_000)
    sql.enqueue_many({"queue": "q", "priority": n % 3} for n in range(count))

    def work(member: Sql, number: int) -> int:
        claims: list[Json] = []
        done = 0
        while True:
            response = member.claim(n=1 + number % 7, finished=[completed(claim) for claim in claims])
            assert {answer["status"] for answer in response["finished"]} <= {"ok"}
            done += len(response["finished"])
            claims = response["claims"]
            if response["empty"]:
                return done

    assert sum(callers.all(work)) == count
    assert sql.one("select count(*) from sluicegate.job where state = 'done' and attempts_total = 1") == count
    assert check_ledger(sql) == count


def test_a_killed_backend_leaves_its_claims_unmade(sql: Sql, another: OpenSql) -> None:
    jobs = sql.enqueue_many([{"queue": "q"}] * 2)
    victim = another()
    claims = victim.take(n=1)
    victim.do("begin")
    assert len(victim.claim(finished=[completed(claims[0])])["claims"]) == 1
    sql.do("select pg_terminate_backend(%s, 30000)", victim.pid)
    with pytest.raises(psycopg.OperationalError):
        victim.commit()
    assert [sql.state(job) for job in jobs] == ["claimed", "pending"]
    assert sql.heartbeat({"job": {"id": jobs[0]}, **lease(claims[0])})["status"] == "ok"
    assert sql.take_one()["job"]["id"] == jobs[1]
    check_ledger(sql)

"""Multi-row verbs lock by id, after their request ids: calls in opposite orders queue up instead of deadlocking.

Each test holds the row with the lowest id. A call that locks in order then waits at that row and holds no other, whatever
order its input has; one that locks in the order of its input is seen to hold a later row.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.sql.conftest import OpenSql
from tests.sql.verbs import (
    Crowd,
    Json,
    Sql,
    check_ledger,
    completed,
    failed,
    in_background,
    is_locked,
    released,
    wait_blocked,
)
from tests.support.counts import rounds


@pytest.fixture(autouse=True)
def waits_last(sql: Sql) -> None:
    """Nobody gives up waiting, so that no test depends on its speed."""
    for function in ("claim", "finish"):
        sql.do(f"alter function sluicegate.{function} set lock_timeout = '50s'")


IN_INPUT_ORDER = "order by position(j.id::text in p_items::text)"


@pytest.mark.parametrize("naive", [False, True])
@pytest.mark.parametrize(("item", "function"), [(completed, "complete_all"), (failed, "finish_jobs")])
def test_finishes_in_opposite_orders_lock_by_id(
    sql: Sql, another: OpenSql, item: Callable[[Json], Json], function: str, naive: bool
) -> None:
    # Ids of one width, none of which stands inside another or a token.
    sql.do("alter sequence sluicegate.job_id_seq restart 70000000001")
    jobs = [sql.enqueue() for _ in range(3)]
    claims = sql.take(n=3)
    if naive:
        sql.replace(function, ("order by j.id", IN_INPUT_ORDER))
    holder, forth, back = another(), another(), another()
    calls = []
    with holder.transaction():
        holder.do("select from sluicegate.job where id = %s for update", jobs[0])
        for caller, order in ((forth, claims), (back, claims[::-1])):
            items = [item(claim) for claim in order]
            calls.append(in_background(lambda c=caller, i=items: c.claim("none", finished=i)))  # type: ignore[misc]
            wait_blocked(sql, caller.pid)
        assert is_locked(sql, jobs[2]) is naive
        if naive:
            sql.do("select pg_cancel_backend(%s)", back.pid)
    answers = [call.result(30)["finished"] for call in calls if not naive]
    assert [answer["status"] for finished in answers for answer in finished] == ["ok"] * (0 if naive else 6)


@pytest.mark.parametrize("naive", [False, True])
def test_a_repeated_claim_and_the_finishes_beside_it_lock_their_jobs_together_by_id(
    sql: Sql, another: OpenSql, naive: bool
) -> None:
    low, high = sql.enqueue("low"), sql.enqueue("high")
    (first,) = sql.take("low", request_id="low")
    (second,) = sql.take("high", request_id="high")
    if naive:
        sql.replace("claim_locks", ("if v_again is not null then", "if false then"))
    holder, forth, back = another(), another(), another()
    calls = []
    with holder.transaction():
        holder.do("select from sluicegate.job where id = %s for update", low)
        for caller, again, stale in ((forth, "high", first), (back, "low", second)):
            item = {**completed(stale), "lease_token": "stale"}
            calls.append(in_background(lambda c=caller, a=again, i=item: c.claim(a, request_id=a, finished=[i])))  # type: ignore[misc]
            wait_blocked(sql, caller.pid)
        assert is_locked(sql, high) is naive
        if naive:
            sql.do("select pg_cancel_backend(%s)", back.pid)
    if not naive:
        for call in calls:
            response = call.result(30)
            assert (response["replayed"], len(response["claims"]), response["error"]) == (True, 1, None)
            assert response["finished"][0]["status"] == "conflict"


def test_request_ids_are_locked_in_one_order_whatever_the_order_of_the_requests(sql: Sql, another: OpenSql) -> None:
    ids = [f"r{n}" for n in range(6)]
    ordered = [
        row["id"]
        for row in sql.rows(
            "select id from unnest(%s::text[]) id order by sluicegate.request_key(sluicegate.scope_id(null), id)", ids
        )
    ]
    holder, forth, back = another(), another(), another()
    calls = []
    with holder.transaction():
        holder.do("select pg_advisory_xact_lock(sluicegate.request_key(sluicegate.scope_id(null), %s))", ordered[0])
        for caller, order in ((forth, ids), (back, ids[::-1])):
            requests = [{"queues": ["q"], "request_id": request_id} for request_id in order]
            calls.append(in_background(lambda c=caller, r=requests: c.call("claim", requests=r)))  # type: ignore[misc]
            wait_blocked(sql, caller.pid)
        free = "select pg_try_advisory_xact_lock(sluicegate.request_key(sluicegate.scope_id(null), %s))"
        assert all(sql.one(free, request_id) for request_id in ordered[1:])
    for call in calls:
        assert all(response["empty"] for response in call.result(30)["responses"])


def test_a_claim_takes_every_lock_it_may_wait_for_before_it_does_anything(sql: Sql, another: OpenSql) -> None:
    """Who waits for a request id holds no job, so the one it waits for can finish that job."""
    job = sql.enqueue()
    claim = sql.take_one()
    first, second = another(), another()
    with first.transaction():
        first.claim("none", request_id="r")
        waiting = in_background(lambda: second.claim("none", request_id="r", finished=[completed(claim)]))
        wait_blocked(sql, second.pid, by=first.pid)
        assert not is_locked(sql, job)
        assert first.complete(claim)["status"] == "ok"
        first.commit()
    assert waiting.result(30)["finished"][0]["replayed"] is True


def test_two_finishes_of_one_claim_at_once_end_it_once(sql: Sql, another: OpenSql) -> None:
    first, second = another(), another()
    verbs: list[tuple[str, dict[str, Any]]] = [("complete", {}), ("fail", {"error": "e"}), ("release", {})]
    for verb, options in verbs:
        for other, other_options in verbs:
            job = sql.enqueue()
            claim = sql.take_one()
            held = {"job_id": job, "lease_token": claim["lease_token"]}
            with first.transaction():
                assert first.call(verb, **held, **options)["status"] == "ok"
                waiting = in_background(lambda o=other, p=other_options, h=held: second.call(o, **h, **p))  # type: ignore[misc]
                wait_blocked(sql, second.pid, by=first.pid)
                first.commit()
            answer = waiting.result(30)
            want = ("ok", True) if verb == other else ("conflict", False)
            assert (answer["status"], answer["replayed"]) == want
            assert len(sql.attempts(job)) == 1
            sql.do("delete from sluicegate.job")
    check_ledger(sql)


def test_a_finish_and_a_takeover_at_once_let_one_of_them_win(sql: Sql, another: OpenSql) -> None:
    worker, taker = another(), another()
    job = sql.enqueue()
    claim = sql.take_one()
    sql.lapse(job)
    with taker.transaction():
        taker.take_one()
        waiting = in_background(lambda: worker.complete(claim))
        wait_blocked(sql, worker.pid, by=taker.pid)
        taker.commit()
    assert waiting.result(30)["status"] == "conflict"
    assert sql.ends(job) == [("lease_expired", "requeued"), (None, None)]
    other = sql.enqueue("other")
    claim = sql.take_one("other")
    sql.lapse(other)
    with worker.transaction():
        worker.complete(claim)
        assert taker.claim("other")["claims"] == []
        worker.commit()
    assert taker.claim("other")["empty"] is True
    check_ledger(sql)


def test_everything_at_once_in_every_order_never_deadlocks(sql: Sql, crowd: Callable[[int], Crowd]) -> None:
    """Every multi-row verb over the same few jobs from eight connections; the server log of the run is checked."""
    callers = crowd(8)
    for number in range(rounds(8, 150)):
        jobs = sql.enqueue_many(
            [{"queue": "q", "dedup_key": f"k{n}", "backoff": {"base_seconds": 0}} for n in range(6)]
        )
        claims = sql.take(n=6, request_id=f"r{number}")

        def act(
            member: Sql, who: int, claims: list[Json] = claims, number: int = number, jobs: list[int] = jobs
        ) -> None:
            mixed = claims[who % 6 :] + claims[: who % 6]
            ordered = mixed if who % 2 else mixed[::-1]
            build = (completed, failed, released)[(who + number) % 3]
            match who:
                case 0 | 1:
                    items = [{"job_id": c["job"]["id"], "lease_token": c["lease_token"]} for c in ordered]
                    member.call("heartbeat_many", items=items)
                case 2 | 3 | 4:
                    member.claim(
                        n=6, request_id=f"r{number}" if who == 4 else None, finished=[build(c) for c in ordered]
                    )
                case 5:
                    member.enqueue_many([{"queue": "q", "dedup_key": f"k{n}"} for n in (5, 3, 1, 0, 2, 4)])
                case 6:
                    member.call("reap")
                    for job in jobs:
                        member.call("retry", job_id=job)
                case _:
                    member.claim(n=6, lease_seconds=60)
                    member.call("cancel", job_id=jobs[number % 6])

        callers.all(act)
        check_ledger(sql)
        sql.do("delete from sluicegate.job")
        sql.do("delete from sluicegate.attempt")
        sql.do("delete from sluicegate.attempt_end")

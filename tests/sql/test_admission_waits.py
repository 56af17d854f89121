"""A transaction that holds lanes waits for nothing for long: whoever waits for its lane may hold what it wants."""

from collections.abc import Callable

import psycopg
import pytest

from tests.sql.budgets import govern, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql, check_ledger, completed, in_background, lease, wait_blocked
from tests.support.servers import Server

pytestmark = pytest.mark.usefixtures("midweek")


def finish_with_a_claim(sql: Sql, held: Json) -> str:
    return str(sql.claim("none", finished=[completed(held)])["finished"][0]["status"])


# What a transaction may do after it has claimed; each answers or is refused.
VERBS: dict[str, Callable[[Sql, Json], object]] = {
    "complete": lambda sql, held: sql.complete(held)["status"],
    "fail": lambda sql, held: sql.fail(held)["status"],
    "release": lambda sql, held: sql.release(held)["status"],
    "heartbeat": lambda sql, held: sql.call("heartbeat", **lease(held))["status"],
    "cancel": lambda sql, held: sql.call("cancel", job_id=held["job"]["id"])["status"],
    "retry": lambda sql, held: sql.call("retry", job_id=held["job"]["id"])["status"],
    "claim": finish_with_a_claim,
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_claim_that_waits_for_a_lane_is_never_shot_for_what_the_holder_does_next(
    sql: Sql, another: OpenSql, server: Server, verb: str
) -> None:
    """The other claim has locked a lapsed job as its candidate, and waits for the lane; the holder wants that job."""
    sql.enqueue_many([{"queue": "q"}] * 3)
    govern(sql, max_in_flight=5)
    lapsed = sql.take_one()
    holder, other = another(), another()
    holder.do("begin")
    assert len(holder.take("q")) == 1
    sql.lapse(lapsed["job"]["id"])
    waiting = in_background(lambda: other.claim("q"))
    wait_blocked(sql, other.pid, by=holder.pid)
    holder.do("savepoint before")
    try:
        answer = VERBS[verb](holder, lapsed)
    except psycopg.errors.LockNotAvailable:
        holder.do("rollback to before")
    else:
        assert answer == "unavailable"
    holder.commit()
    (claim,) = waiting.result(30)["claims"]
    assert claim["job"]["id"] == lapsed["job"]["id"], "taken over"
    check_ledger(sql)
    database = sql.one("select current_database()")
    assert not [line for line in server.log_text().splitlines() if "deadlock detected" in line and database in line]


def test_a_policy_is_not_waited_for_long_either(sql: Sql, another: OpenSql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 4)
    govern(sql, max_in_flight=5)
    editor, holder = another(), another()
    editor.do("begin")
    editor.call("patch_admission_policy", queue="q", patch={"max_in_flight": 4})
    govern(sql, "p", max_in_flight=5)
    sql.enqueue("p")
    holder.do("begin")
    assert len(holder.take("p")) == 1
    with pytest.raises(psycopg.errors.LockNotAvailable):
        holder.call("patch_admission_policy", queue="q", patch={"max_in_flight": 3})
    holder.do("rollback")
    editor.commit()


@pytest.mark.parametrize("lanes", [2, 4])
def test_a_batch_of_takeovers_that_one_lane_has_no_room_for_is_taken_whole(sql: Sql, lanes: int) -> None:
    """Eight lapsed claims of one lane, which has room for two of them: the others go where there is room."""
    sql.enqueue_many([{"queue": "q"}] * 8)
    govern(sql, "q", window(10 * lanes), lanes=lanes)
    held = sql.take("q", n=8)
    assert len(held) == 8
    sql.lapse(*(claim["job"]["id"] for claim in held))
    assert len(sql.take("q", n=8)) == 8
    check_ledger(sql)


def test_a_call_that_does_not_wait_leaves_a_policy_that_somebody_changes_and_does_the_rest(
    sql: Sql, another: OpenSql
) -> None:
    sql.enqueue_many([{"queue": "q"}] * 2 + [{"queue": "p"}] * 2)
    govern(sql, max_in_flight=5)
    held = sql.take_one("p")
    editor, worker = another(), another()
    # A call that waits for the policy, for 5 s, or that waits for one after the other, is ended by this.
    worker.do("set statement_timeout = '3s'")
    editor.do("begin")
    editor.call("patch_admission_policy", queue="q", patch={"max_in_flight": 4})
    requests = [{"queues": [queue]} for queue in ("q", "p")]
    answer = worker.call("claim", requests=requests, finished=[completed(held)], wait=False)
    busy, taken = answer["responses"]
    assert [busy["error"], busy["claims"], busy["deferred"], busy["empty"]] == [None, [], [], False]
    assert (busy["held"], taken["held"]) == (["q"], [])
    assert [claim["job"]["queue"] for claim in taken["claims"]] == ["p"]
    assert [finish["status"] for finish in answer["finished"]] == ["ok"]
    alone = worker.call("claim", requests=requests[:1], wait=False)["responses"][0]
    assert [alone["claims"], alone["deferred"], alone["empty"]] == [[], [], False], "nor is it closed"
    editor.commit()
    assert len(worker.take("q")) == 1
    check_ledger(sql)


def test_a_call_that_does_not_wait_leaves_a_job_that_somebody_holds(sql: Sql, another: OpenSql) -> None:
    sql.enqueue_many([{"queue": "q"}] * 3)
    held, free = sql.take(n=2)
    holder, worker = another(), another()
    holder.do("begin")
    holder.do("select from sluicegate.job where id = %s for update", held["job"]["id"])
    worker.do("set statement_timeout = '900ms'")
    finished = [completed(held), completed(free)]
    answer = worker.call("claim", requests=[{"queues": ["q"]}], finished=finished, wait=False)
    assert [finish["status"] for finish in answer["finished"]] == ["unavailable", "ok"]
    assert len(answer["responses"][0]["claims"]) == 1
    holder.do("rollback")
    check_ledger(sql)


@pytest.mark.parametrize("wait", [True, False])
def test_of_many_jobs_that_are_held_one_is_waited_for(sql: Sql, another: OpenSql, *, wait: bool) -> None:
    """Not one after the other: everything else that the caller has would wait for all of them."""
    claims = sql.enqueue_many([{"queue": "q"}] * 101) and sql.take(n=101)
    free = claims.pop()
    holder, worker = another(), another()
    holder.do("begin")
    holder.do("select from sluicegate.job where id <> %s for update", free["job"]["id"])
    # Each of them for a tenth of a second would be ten seconds.
    worker.do("set statement_timeout = '6s'")
    answer = worker.call("claim", requests=[], finished=[completed(one) for one in [*claims, free]], wait=wait)
    assert [finish["status"] for finish in answer["finished"]] == ["unavailable"] * 100 + ["ok"]
    holder.do("rollback")


def test_a_repeated_call_that_does_not_wait_leaves_a_job_that_somebody_holds(sql: Sql, another: OpenSql) -> None:
    """Its claims are renewed as they are answered again, so their jobs are locked first; and a request that still runs is left as well."""
    sql.enqueue_many([{"queue": queue} for queue in "qqp"])
    requests = [{"queues": ["q"], "request_id": "once"}, {"queues": ["p"], "request_id": "another"}]
    (held,) = sql.call("claim", requests=requests)["responses"][0]["claims"]
    holder, worker = another(), another()
    # The claim's own patience is ten seconds.
    worker.do("set statement_timeout = '5s'")
    holder.do("begin")
    holder.do("select from sluicegate.job where id = %s for update", held["job"]["id"])
    answers = worker.call("claim", requests=requests, wait=False)["responses"]
    assert [answer["error"]["sqlstate"] for answer in answers] == ["55P03"] * 2
    holder.do("rollback")
    again = [{"queues": ["q"], "request_id": "new"}, {"queues": ["p"], "request_id": "newer"}]
    holder.do("begin")
    holder.call("claim", requests=again)
    late = worker.call("claim", requests=again, wait=False)["responses"]
    assert [answer["error"]["sqlstate"] for answer in late] == ["55P03"] * 2
    holder.do("rollback")
    answers = worker.call("claim", requests=requests, wait=False)["responses"]
    assert [answer["replayed"] for answer in answers] == [True, True]
    check_ledger(sql)

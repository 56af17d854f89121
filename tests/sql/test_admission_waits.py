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

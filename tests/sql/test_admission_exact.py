"""What stays exact because real life does it: limits over running work, lapses, batches, lanes that grow, clocks that step back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from sluicegate.testing import freeze_clock
from tests.sql.admission_checks import NOON, ask_alone, check_all, claimed, stock
from tests.sql.budgets import gates, govern, opened, used, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Json, Sql, check_ledger, in_background, wait_blocked
from tests.support.waiting import eventually

# A limit set while claims are in the air


def test_a_first_policy_counts_what_was_claimed_before_it_from_the_start(sql: Sql) -> None:
    freeze_clock(sql.connection, NOON)
    stock(sql, "q", 9)
    sql.take(n=3)
    status = sql.call("set_admission_policy", queue="q", policy={"limits": [window(3), window(5, "hour")]})
    assert status["status"] == "window_exhausted"
    assert {gate["period"]: gate["used"] for gate in status["gates"]} == {"day": 3, "hour": 3}
    check_all(sql, "q")
    sql.call("reset_usage", queue="q", period="day")
    check_all(sql, "q")
    assert len(ask_alone(sql, n=9)["claims"]) == 2
    assert (used(sql), used(sql, "hour")) == (2, 5)
    check_all(sql, "q")


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_new_window_waits_for_a_governed_claim_in_the_air_and_counts_it(
    sql: Sql, another: OpenSql, lanes: int
) -> None:
    stock(sql, "q", 9)
    govern(sql, "q", max_in_flight=9, lanes=lanes)
    early, editor = another(), another()
    early.do("begin")
    assert len(early.take(n=2)) == 2
    limits = {"limits": [window(3)], "max_in_flight": 9, "lanes": lanes}
    editing = in_background(lambda: editor.call("set_admission_policy", queue="q", policy=limits))
    wait_blocked(sql, editor.pid, by=early.pid)
    early.commit()
    assert editing.result(30)["gates"][1]["used"] == 2
    assert len(ask_alone(sql, n=9)["claims"]) == 1
    assert used(sql) == opened(sql) == 3


def test_a_window_added_while_the_first_policy_still_waits_counts_the_claims_in_the_air_too(
    sql: Sql, another: OpenSql
) -> None:
    stock(sql, "q", 9)
    early = another()
    early.do("begin")
    early.take(n=2)
    govern(sql, "q", window(9), opened=False)
    govern(sql, "q", window(9), window(3, "hour"), max_in_flight=5, opened=False)
    assert sql.take() == []
    early.commit()
    assert len(ask_alone(sql, n=9)["claims"]) == 1
    assert (used(sql), used(sql, "hour"), gates(sql)["in_flight"]["used"]) == (3, 3, 3)


# A cap over running jobs


@pytest.mark.parametrize("lanes", [1, 3, 16])
@pytest.mark.parametrize("before", ["ungoverned", "window only"])
def test_a_cap_over_running_jobs_counts_them_all(sql: Sql, lanes: int, before: str) -> None:
    freeze_clock(sql.connection, NOON)
    stock(sql, "q", 12)
    if before == "window only":
        govern(sql, "q", window(100), lanes=4)
    held = [claim for _ in range(5) for claim in ask_alone(sql)["claims"]]
    govern(sql, "q", max_in_flight=3, lanes=lanes)
    check_all(sql, "q")
    for number, claim in enumerate(held, 1):
        assert ask_alone(sql)["deferred"][0]["all"][0]["used"] == 6 - number
        sql.complete(claim)
        check_all(sql, "q")
        if number == 3:
            assert [len(ask_alone(sql, n=9)["claims"]), claimed(sql, "q")] == [1, 3]
            break
    check_all(sql, "q")


def spend(sql: Sql, job: int) -> None:
    """Let a claim lapse that nobody may take over."""
    sql.do("update sluicegate.job set max_attempts = attempt where id = %s", job)
    sql.lapse(job)


ENDS: dict[str, Callable[[Sql, Json], object]] = {
    "complete": lambda sql, claim: sql.complete(claim),
    "fail": lambda sql, claim: sql.fail(claim),
    "release": lambda sql, claim: sql.release(claim),
    "spent": lambda sql, claim: spend(sql, claim["job"]["id"]),
}


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("order", list(permutations(ENDS)), ids="-".join)
def test_a_cap_lowered_below_its_use_is_worked_off_in_every_order(sql: Sql, lanes: int, order: tuple[str, ...]) -> None:
    freeze_clock(sql.connection, NOON)
    stock(sql, "q", 9)
    govern(sql, max_in_flight=4, lanes=lanes)
    held = [claim for _ in range(4) for claim in ask_alone(sql)["claims"]]
    govern(sql, max_in_flight=2, lanes=4 - lanes)
    check_all(sql, "q")
    for left, end, claim in zip((3, 2, 1), order, held[::-1], strict=False):
        ENDS[end](sql, claim)
        check_all(sql, "q")
        got = ask_alone(sql, n=9)
        assert len(got["claims"]) == max(0, 2 - left)
        assert got["deferred"][0]["reason"] == "in_flight_full"
        # A lapsed claim that nobody may take over still stands there, and no longer counts.
        assert gates(sql)["in_flight"]["used"] == max(left, 2)
        check_all(sql, "q")
    check_ledger(sql)


# Lanes


@pytest.mark.parametrize("path", [(1, 16, 3, 1), (16, 1, 16, 2), (5, 4, 3, 2, 1)], ids=str)
def test_lanes_grow_and_shrink_and_nothing_is_lost_or_gained(sql: Sql, path: tuple[int, ...]) -> None:
    freeze_clock(sql.connection, NOON)
    stock(sql, "q", 60)
    held: list[Json] = []
    for lanes in path:
        govern(sql, "q", window(23), max_in_flight=7, lanes=lanes)
        check_all(sql, "q")
        held += [claim for _ in range(3) for claim in ask_alone(sql, n=2)["claims"]]
        assert claimed(sql, "q") == min(7, len(held))
        check_all(sql, "q")
        for claim in held[::2]:
            sql.complete(claim)
        held = held[1::2]
        check_all(sql, "q")
    while got := ask_alone(sql, n=9)["claims"]:
        for claim in held + got:
            sql.complete(claim)
        held = []
    assert (opened(sql), used(sql)) == (23, 23)
    check_all(sql, "q")


@pytest.mark.parametrize("naive", [False, True])
def test_lanes_that_grow_while_a_claim_takes_them_all_lose_no_charge(sql: Sql, another: OpenSql, naive: bool) -> None:
    """The exact way waits for the lanes it saw; those added meanwhile are charged by others, and must be waited for too."""
    stock(sql, "q", 30)
    govern(sql, "q", window(8))
    editor, slow, fast = another(), another(), another()
    written = "    update sluicegate.lane l\n"
    gate = "    perform pg_advisory_lock_shared(7);\n    perform pg_advisory_unlock_shared(7);\n"
    sql.replace("settle", (written, gate + written))
    if naive:
        sql.replace("lock_lanes", ("if v_at = 0 then", "if false then"))
    with editor.transaction():
        editor.call("set_admission_policy", queue="q", policy={"limits": [window(8)], "lanes": 4})
        slow.do("begin")
        waiting = in_background(lambda: slow.one("select sluicegate.admit_slow(1, '{}', 1, 0)"))
        wait_blocked(sql, slow.pid, by=editor.pid)
        sql.one("select pg_advisory_lock(7)")
        editor.commit()
    # It holds the lanes that it knows of, and has read them, and is about to write their shares anew.
    wait_blocked(sql, slow.pid, by=sql.pid)
    taking = in_background(fast.take)
    eventually(lambda: taking.done() or sql.one("select cardinality(pg_blocking_pids(%s)) > 0", fast.pid), "a claim")
    sql.one("select pg_advisory_unlock(7)")
    waiting.result(30)
    slow.do("commit")
    assert len(taking.result(30)) == opened(sql) == 1
    # One charge of the quick way and one of the exact way.
    assert (used(sql) == 2) is not naive


# Batches, boundaries, many queues


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("kind", ["window", "in flight"])
def test_a_batch_over_a_nearly_used_budget_is_cut_to_what_is_left(sql: Sql, lanes: int, kind: str) -> None:
    freeze_clock(sql.connection, NOON)
    stock(sql, "q", 40)
    limits: Json = {"max_in_flight": 20} if kind == "in flight" else {}
    govern(sql, "q", *([window(20)] if kind == "window" else []), lanes=lanes, **limits)
    while opened(sql) < 17:
        assert ask_alone(sql, n=17 - opened(sql))["claims"]
    check_all(sql, "q")
    while got := ask_alone(sql, n=10)["claims"]:
        assert opened(sql) <= 20, got
        check_all(sql, "q")
    assert opened(sql) == 20
    assert ask_alone(sql, n=10)["deferred"][0]["pending"] == 20


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("exact_way", [False, True])
def test_a_claim_that_waited_across_midnight_opens_in_the_new_day(
    sql: Sql, another: OpenSql, lanes: int, exact_way: bool
) -> None:
    midnight = datetime(2026, 5, 6, tzinfo=UTC)
    freeze_clock(sql.connection, midnight - timedelta(seconds=1))
    stock(sql, "q", 9)
    govern(sql, "q", window(1), lanes=lanes)
    if exact_way:
        # Every lane is closed to the quick way: it must take them all.
        sql.do("update sluicegate.lane set live = false")
    holder, waiter = another(), another()
    with holder.transaction():
        holder.do("select from sluicegate.lane for no key update")
        waiting = in_background(lambda: waiter.claim(n=5))
        wait_blocked(sql, waiter.pid, by=holder.pid)
        freeze_clock(sql.connection, midnight + timedelta(seconds=1))
    (claim,) = waiting.result(30)["claims"]
    assert sql.attempts(claim["job"]["id"])[0]["opened_at"] == midnight + timedelta(seconds=1)
    assert (used(sql), gates(sql)["day"]["starts"]) == (1, "2026-05-06T00:00:00+00:00")
    check_all(sql, "q")


TIGHT: dict[str, Json] = {
    "hour": {"limits": [window(2, "hour"), window(9)], "max_in_flight": 9},
    "day": {"limits": [window(9, "hour"), window(2)], "max_in_flight": 9},
    "in_flight": {"limits": [window(9, "hour"), window(9)], "max_in_flight": 2},
}


@pytest.mark.parametrize("lanes", [1, 3])
def test_several_queues_in_one_call_each_keep_the_tightest_of_their_limits(sql: Sql, lanes: int) -> None:
    freeze_clock(sql.connection, NOON)
    for queue, policy in TIGHT.items():
        stock(sql, queue, 8)
        sql.call("set_admission_policy", queue=queue, policy={**policy, "lanes": lanes})
    stock(sql, "free", 3)
    got: list[str] = []
    for _ in range(12):
        got += [claim["job"]["queue"] for claim in sql.take(*TIGHT, "free", n=20)]
    assert {queue: got.count(queue) for queue in got} == {"hour": 2, "day": 2, "in_flight": 2, "free": 3}
    deferred = {entry["queue"]: entry for entry in ask_alone(sql, *TIGHT)["deferred"]}
    for queue in TIGHT:
        (closed,) = deferred[queue]["all"]
        assert (closed["period"] or closed["gate"], closed["used"], closed["limit"]) == (queue, 2, 2)
    check_all(sql, *TIGHT, "free")


def test_a_queue_that_needs_the_exact_way_starves_behind_no_other(sql: Sql) -> None:
    """A call that holds a lane takes no other's lanes all at once; so each of its queues must sometimes come first."""
    govern(sql, "busy", window(1000))
    stock(sql, "tight", 6)
    govern(sql, "tight", max_in_flight=2)
    held = ask_alone(sql, "tight", n=2)["claims"]
    govern(sql, "tight", max_in_flight=1)
    for claim in held:
        sql.complete(claim)
    for _ in range(80):
        sql.enqueue("busy", priority=0)
        if "tight" in {claim["job"]["queue"] for claim in sql.take("busy", "tight", n=5)}:
            return
    raise AssertionError("80 calls took nothing of a queue that has room")


# A clock that steps back


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_a_clock_that_steps_back_over_a_boundary_opens_nothing_twice_and_closes_nothing(sql: Sql, lanes: int) -> None:
    freeze_clock(sql.connection, NOON - timedelta(seconds=30))
    stock(sql, "q", 30)
    govern(sql, "q", window(4, "hour"), window(20), lanes=lanes)
    assert sum(len(ask_alone(sql, n=4)["claims"]) for _ in range(4)) == 4
    freeze_clock(sql.connection, NOON + timedelta(seconds=30))
    assert len(ask_alone(sql)["claims"]) == 1
    check_all(sql, "q")
    freeze_clock(sql.connection, NOON - timedelta(seconds=10))
    check_all(sql, "q")
    assert sum(len(ask_alone(sql, n=4)["claims"]) for _ in range(4)) == 3
    check_all(sql, "q")
    assert ask_alone(sql)["deferred"][0]["next_eligible_at"] == "2026-05-06T13:00:00+00:00"
    assert sql.one("select max(lease_expires_at) from sluicegate.job") == NOON + timedelta(seconds=330)
    freeze_clock(sql.connection, NOON + timedelta(hours=1))
    assert sum(len(ask_alone(sql, n=4)["claims"]) for _ in range(4)) == 4
    check_all(sql, "q")

"""All verbs and policy changes at once, from eight connections: what was charged is what was opened, and no more."""

import random
import time
from collections.abc import Callable

import psycopg

from tests.sql.budgets import ask, check_lanes, govern, opened, window
from tests.sql.verbs import Crowd, Json, Sql, check_ledger, completed
from tests.support.counts import full, rounds

CAP = 6
SECONDS = rounds(6, 60)


def _work(member: Sql, number: int) -> int:
    """Claims, finishes and lapses as they come."""
    dice = random.Random(number)
    held: list[Json] = []
    calls = 0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        calls += 1
        match dice.randrange(9):
            case 0:
                member.enqueue_many([{"queue": "ab"[dice.randrange(2)], "max_attempts": dice.randint(1, 3)}] * 4)
            case 1 | 2:
                held += member.claim("a", "b", n=dice.randint(1, 5), request_id=f"{number}-{calls}")["claims"]
            case 3:
                held += member.claim("a")["claims"]
            case 4:
                finished = [completed(claim) for claim in held[:2]]
                held = held[2:] + member.claim("a", finished=finished)["claims"]
            case 5 if held:
                member.fail(held.pop(), retry_in_seconds=0)
            case 6 if held:
                member.release(held.pop(), started=dice.random() < 0.5)
            case 7 if held:
                claim = held.pop()
                # Lapsed for all who look at the lease; the record ends when somebody takes it over.
                member.do(
                    "update sluicegate.job set lease_expires_at = sluicegate.clock() where id = %s and attempt_id = %s",
                    claim["job"]["id"],
                    claim["attempt_id"],
                )
                member.call("claim_job", job_id=claim["job"]["id"])
            case 8:
                if held and dice.random() < 0.5:
                    member.call("cancel", job_id=held[0]["job"]["id"])
                else:
                    member.call("reap")
            case _:
                pass
    return calls


def _tolerating(sqlstate: str, call: Callable[[], object]) -> None:
    try:
        call()
    except psycopg.Error as error:
        if error.sqlstate != sqlstate:
            raise


def _change(member: Sql, number: int) -> int:
    """Edits of both policies; the cap of "a" is never above CAP, and it always has one."""
    dice = random.Random(number)
    changes = 0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        changes += 1
        match dice.randrange(6):
            case 0 | 1:
                limits = [window(dice.randint(20, 400)), window(500, "hour")][: dice.randint(1, 2)]
                govern(member, "a", *limits, opened=False, max_in_flight=dice.randint(2, CAP), lanes=dice.randint(1, 5))
            case 2:
                govern(member, "b", window(dice.randint(1, 50), "hour"), opened=False, lanes=dice.randint(1, 3))
            case 3:
                member.call("pause_queue", queue="a")
                member.call("resume_queue", queue="a")
            case 4:
                _tolerating("SG003", lambda: member.call("reset_usage", queue="a"))
            case _:
                _tolerating("SG002", lambda: member.call("clear_admission_policy", queue="b"))
        time.sleep(dice.random() / 20)
    return changes


def _most_claimed(member: Sql, _: int) -> int:
    """The most jobs of "a" in flight at any look, none of them being a record of before."""
    most = 0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        most = max(most, member.one("select count(*) from sluicegate.job where queue_id = 1 and state = 'claimed'"))
        time.sleep(0.005)
    return most


def test_a_random_walk_charges_what_it_opens_and_keeps_the_cap(sql: Sql, crowd: Callable[[int], Crowd]) -> None:
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    govern(sql, "a", window(400), window(500, "hour"), max_in_flight=CAP, lanes=3)
    govern(sql, "b", window(30, "hour"))
    sql.do("update sluicegate.queue set name = name where id = 1")
    assert sql.one("select id from sluicegate.queue where name = 'a'") == 1
    before = sql.one(deadlocks)

    def play(member: Sql, number: int) -> int:
        return {0: _change, 1: _most_claimed}.get(number, _work)(member, number)

    changes, most, *calls = crowd(10 if not full() else 20).all(play)
    assert changes > 5
    assert min(calls) > 5
    assert most <= CAP
    sql.one("select pg_stat_force_next_flush()")
    assert sql.one(deadlocks) == before
    check_ledger(sql)
    check_lanes(sql)
    # The windows of "a" that were there all along: everything opened since is charged, resets or not.
    (row,) = sql.rows(
        """
        select (select sum(u.used) from sluicegate.lane l cross join unnest(l.windows, l.used, l.starts) u(id, used, starts)
            where l.queue_id = 1 and u.id = b.id and u.starts = w.starts) as charged,
            (select count(*) from sluicegate.attempt a where a.queue_id = 1 and a.opened_at >= w.starts) as opened
        from sluicegate.budget_window b, sluicegate.window_at(b.period, b.tz, b.starts_at, b.origin, sluicegate.clock()) w
        where b.queue_id = 1 and b.period = 'day'
        """
    )
    assert row["charged"] == row["opened"]
    assert opened(sql, "a") >= 20
    govern(sql, "b", window(1_000_000, "hour"))
    sql.enqueue("b")
    assert len(ask(sql, "b")["claims"]) == 1
    (gate,) = (gate for gate in sql.call("budget_show", queue="b")["gates"] if gate["gate"] == "window")
    assert gate["used"] == sql.one(
        "select count(*) from sluicegate.attempt a where a.queue_id = 2 and a.opened_at >= %s", gate["starts"]
    )

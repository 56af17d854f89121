"""Fifty callers at once, over two processes, on a limit of ten: ten are admitted, forty are told why not and until when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sluicegate.testing import set_clock
from tests.sql.budgets import ask, check_lanes, gates, govern, window
from tests.sql.burst import Burst
from tests.sql.verbs import Json, Sql, check_ledger
from tests.support.counts import full

# A Wednesday: no window ends while this runs.
BEGIN = datetime(2026, 6, 10, 12, 10, tzinfo=UTC)
LIMIT, WIDER, JOBS = 10, 12, 60
PERIODS = ("hour", "day", "week", "month")
KINDS = (*PERIODS, "in flight", "both")
MOST_ROUNDS = {("day", 1, 1): 200, ("in flight", 7, 16): 200}
FEW_ROUNDS = {
    ("day", 1, 1): 3,
    ("day", 7, 4): 2,
    ("hour", 1, 16): 2,
    ("in flight", 7, 16): 3,
    ("in flight", 1, 4): 2,
    ("both", 1, 4): 2,
    ("both", 7, 16): 2,
}
COMBINATIONS = [(kind, batch, lanes) for kind in KINDS for batch in (1, 7) for lanes in (1, 4, 16)]
ROUNDS = {one: MOST_ROUNDS.get(one, 10) if full() else FEW_ROUNDS.get(one, 0) for one in COMBINATIONS}

RECORDS = """
select count(distinct a.id) as attempts, count(distinct a.job_id) as jobs, count(distinct j.id) filter (where j.state = 'claimed') as claimed,
    count(distinct j.id) filter (where j.state = 'pending' and j.attempt = 0) as untouched
from sluicegate.queue q join sluicegate.job j on j.queue_id = q.id left join sluicegate.attempt a on a.job_id = j.id
where q.name = %s
"""


def policy(kind: str, number: int) -> tuple[list[Json], Json, set[str]]:
    """Window limits and other fields of a policy of ten, and the names of the limits that close it."""
    if kind == "in flight":
        return [], {"max_in_flight": LIMIT}, {"in_flight"}
    if kind == "both":
        # One of the two is the tight one, or both are.
        day, flight = [(LIMIT, WIDER), (WIDER, LIMIT), (LIMIT, LIMIT)][number % 3]
        tight = {name for name, most in (("day", day), ("in_flight", flight)) if most == LIMIT}
        return [window(day)], {"max_in_flight": flight}, tight
    week = {"weekday": "Mon"} if kind == "week" else {}
    return [window(LIMIT, kind, **week)], {}, {kind}


def check_answers(answers: list[Json], batch: int, closing: set[str], jobs: set[int]) -> None:
    """Ten claims in all of jobs that are claimed; whoever got none was told of the limits that closed, at ten of ten."""
    assert [answer["error"] for answer in answers if answer["error"]] == []
    taken = [claim["job"]["id"] for answer in answers for claim in answer["claims"]]
    assert len(taken) == LIMIT
    assert set(taken) == jobs
    refused = [answer for answer in answers if not answer["claims"]]
    if batch == 1:
        assert len(refused) == len(answers) - LIMIT
    for answer in refused:
        (entry,) = answer["deferred"]
        assert entry["reason"] == ("in_flight_full" if closing == {"in_flight"} else "window_exhausted")
        shut = {gate["period"] or gate["gate"]: (gate["used"], gate["limit"]) for gate in entry["all"]}
        assert shut == dict.fromkeys(closing, (LIMIT, LIMIT))
    assert all(answer["deferred"] == [] for answer in answers if len(answer["claims"]) == batch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if any(ROUNDS[one] for one in COMBINATIONS if one[0] == kind)])
def test_of_fifty_callers_over_two_processes_exactly_ten_are_admitted(sql: Sql, dsn: str, kind: str) -> None:
    set_clock(sql.connection, BEGIN)
    total = 0
    with Burst(dsn) as callers:
        for (_, batch, lanes), rounds in ((one, n) for one, n in ROUNDS.items() if one[0] == kind):
            for number in range(rounds):
                queue = f"b{batch}-s{lanes}-{number}"
                sql.enqueue_many([{"queue": queue}] * JOBS)
                limits, fields, closing = policy(kind, number)
                # Every other queue has never been claimed from when all ask: its first policy has not opened its lanes.
                govern(sql, queue, *limits, lanes=lanes, opened=number % 2 == 1, **fields)
                answers = callers.round(queue, batch)
                claimed = sql.rows(
                    "select a.job_id from sluicegate.attempt a join sluicegate.queue q on q.id = a.queue_id where q.name = %s",
                    queue,
                )
                check_answers(answers, batch, closing, {row["job_id"] for row in claimed})
                assert sql.rows(RECORDS, queue) == [
                    {"attempts": LIMIT, "jobs": LIMIT, "claimed": LIMIT, "untouched": JOBS - LIMIT}
                ]
                assert all(gate["used"] == LIMIT for gate in gates(sql, queue).values())
                (entry,) = ask(sql, queue, n=batch)["deferred"]
                assert entry["pending"] == JOBS - LIMIT
                total += LIMIT
    check_lanes(sql)
    assert check_ledger(sql) == total
    assert sql.one("select count(*) from sluicegate.refusal where reason = 'admission_unavailable'") == 0

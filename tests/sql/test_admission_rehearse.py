"""A rehearsal plays the attempts of the past under a policy; here against a simulation of its own."""

from __future__ import annotations

import heapq
import random
from datetime import UTC, datetime

import pytest

from sluicegate.testing import freeze_clock
from tests.sql.budgets import window
from tests.sql.verbs import Json, Sql

NOON = datetime(2026, 6, 10, 12, tzinfo=UTC)


def past(sql: Sql, *attempts: tuple[float, float | None]) -> None:
    """Attempts of queue q: seconds before noon at which each was opened, and how long it took; None: it still runs."""
    sql.enqueue()
    sql.do(
        "with given as (select row_number() over () as n, at, took from unnest(%s::float8[], %s::float8[]) x(at, took)),"
        " opened as (insert into sluicegate.attempt (job_id, queue_id, seq, attempt, opened_at)"
        " select -n, (select id from sluicegate.queue), 1, 1, %s - make_interval(secs => at) from given returning id, job_id, opened_at)"
        " insert into sluicegate.attempt_end (attempt_id, job_id, ended_at, outcome, disposition, started, lease_token_hash)"
        " select o.id, o.job_id, o.opened_at + make_interval(secs => g.took), 'completed', 'done', true, sha256(o.id::text::bytea)"
        " from opened o join given g on g.n = -o.job_id where g.took is not null",
        [at for at, _ in attempts],
        [took for _, took in attempts],
        NOON,
    )


def rehearse(sql: Sql, days: int = 7, **policy: object) -> Json:
    answer: Json = sql.call("rehearse", queue="q", policy=policy, days=days)
    return answer


@pytest.fixture(autouse=True)
def at_noon(sql: Sql) -> None:
    freeze_clock(sql.connection, NOON)


@pytest.mark.parametrize(("count", "cap"), [(2_000, 1), (2_000, 37), (20_000, 9_000)])
def test_a_cap_is_played_as_a_simulation_plays_it(sql: Sql, count: int, cap: int) -> None:
    rng = random.Random(cap)
    opened = sorted(rng.sample(range(1, 40_000), count), reverse=True)
    attempts = [(at, rng.randrange(1, 40_000 if cap > 1_000 else 40 * cap)) for at in opened]
    past(sql, *attempts)
    free: list[int] = []
    now, waits = -(10**9), []
    for at, took in attempts:
        now = max(now, -at)
        if len(free) == cap:
            now = max(now, heapq.heappop(free))
        heapq.heappush(free, now + took)
        waits.append((now + at, now))
    # It takes a second; looking through every place for every attempt takes most of a minute.
    sql.do("set statement_timeout = '20s'")
    (day,) = rehearse(sql, max_in_flight=cap)["per_day"]
    assert (day["claims"], day["admitted"]) == (count, sum(wait == 0 for wait, _ in waits))
    assert 0 < day["deferred"] == sum(wait > 0 for wait, _ in waits)
    assert day["still_deferred"] == sum(start > 0 for _, start in waits)
    assert (day["longest_wait_seconds"], day["total_wait_seconds"]) == (
        max(wait for wait, _ in waits),
        sum(wait for wait, _ in waits),
    )


def test_the_first_window_has_used_what_came_before(sql: Sql) -> None:
    hour = 3600
    # Two days ago at 09:00, 10:00 and 11:00: before the horizon. At 13:00 and 14:00: of the same day, within it.
    past(sql, *((hours * hour, 1) for hours in (51, 50, 49, 47, 46)))
    two, one = (rehearse(sql, days=2, limits=[window(most)])["per_day"] for most in (4, 5))
    assert [(day["claims"], day["admitted"], day["longest_wait_seconds"]) for day in two] == [(2, 1, 10 * hour)]
    assert [(day["claims"], day["admitted"]) for day in one] == [(2, 2)]
    (three,) = rehearse(sql, days=2, limits=[window(3)])["per_day"]
    assert (three["admitted"], three["longest_wait_seconds"]) == (0, 11 * hour)
    assert rehearse(sql, days=2, limits=[window(1, "hour")])["per_day"][0]["admitted"] == 2


def test_what_ran_already_holds_its_place(sql: Sql) -> None:
    day = 86_400
    # Before the horizon of one day: one ends an hour into it, one two hours, one had ended, one runs on.
    past(
        sql, (day + 60, 60 + 3600), (day + 50, 50 + 7200), (day + 40, 1), (day + 30, None), (day - 9, 5), (day - 10, 5)
    )
    waits = {
        cap: rehearse(sql, days=1, max_in_flight=cap)["per_day"][0]["longest_wait_seconds"] for cap in (1, 2, 3, 4, 5)
    }
    # The second of the two waits longer: for the place, and for the 5 seconds of the first.
    assert waits == {1: day + 5 - 10, 2: 7200 + 5 - 10, 3: 3600 + 5 - 10, 4: 4, 5: 0}


@pytest.mark.parametrize(
    ("until", "admitted", "waiting", "longest"),
    [(None, 0, 2, 0), ("2026-06-10T13:00:00Z", 0, 2, 5400), ("2026-06-10T11:45:00Z", 1, 0, 900)],
)
def test_a_pause_lasts_until_its_end(sql: Sql, until: str | None, admitted: int, waiting: int, longest: int) -> None:
    past(sql, (1800, 1), (600, 1))
    answer = rehearse(sql, paused=True, paused_until=until)
    (day,) = answer["per_day"]
    assert (day["admitted"], day["still_deferred"], day["longest_wait_seconds"]) == (admitted, waiting, longest)
    assert answer["never"] == (2 if until is None else 0)

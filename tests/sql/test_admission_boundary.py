"""The boundary: a closed queue opens at the declared instant, with nothing written to the work that waits."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from sluicegate.testing import advance_clock, freeze_clock
from tests.sql.budgets import ask, gates, govern, opened, rows_and_locks, used, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, in_background, wait_blocked
from tests.sql.zones import Wall, zone_files
from tests.support.counts import full


def at(sql: Sql, when: datetime) -> None:
    """The clock stands still at ``when``."""
    freeze_clock(sql.connection, when)


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("limit", "start", "boundary"),
    [
        (window(2), "2026-02-10T15:00", "2026-02-11T00:00"),
        (window(2, tz="America/Los_Angeles"), "2026-03-08T20:00", "2026-03-09T07:00"),
        (window(2, tz="America/Los_Angeles", start="02:30"), "2026-03-07T20:00", "2026-03-08T10:00"),
        (window(2, tz="America/Los_Angeles", start="01:30"), "2026-10-31T20:00", "2026-11-01T08:30"),
        (window(2, tz="America/Santiago"), "2026-09-05T20:00", "2026-09-06T04:00"),
        (window(2, tz="Africa/Cairo"), "2026-04-23T20:00", "2026-04-23T22:00"),
        (window(2, "hour", "Asia/Kathmandu"), "2026-02-10T15:00", "2026-02-10T15:15"),
        (window(2, "hour", "Australia/Lord_Howe"), "2026-02-10T15:00", "2026-02-10T15:30"),
        (window(2, "hour", "Australia/Lord_Howe"), "2026-07-10T15:00", "2026-07-10T15:30"),
        (window(2, "hour", start="00:30"), "2026-02-10T15:00", "2026-02-10T15:30"),
        (window(2, "week", "Europe/Berlin", weekday="Sun"), "2026-03-28T12:00", "2026-03-28T23:00"),
        (window(2, "month", "Europe/Berlin", day=1), "2028-02-29T12:00", "2028-02-29T23:00"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value['window']['tz']}-{value['window']['period']}",
)
@pytest.mark.parametrize("lanes", [1, 3])
def test_deferred_work_is_claimable_at_the_boundary_and_not_before(
    sql: Sql, limit: dict[str, object], start: str, boundary: str, lanes: int
) -> None:
    at(sql, _utc(start))
    govern(sql, "q", limit, lanes=lanes)
    sql.enqueue_many({"queue": "q"} for _ in range(5))
    assert len(ask(sql, n=5)["claims"]) == 2
    (entry,) = ask(sql)["deferred"]
    assert (datetime.fromisoformat(entry["next_eligible_at"]), entry["exact"]) == (_utc(boundary), True)
    before = rows_and_locks(sql)
    at(sql, _utc(boundary) - timedelta(microseconds=1))
    assert ask(sql)["deferred"][0]["reason"] == "window_exhausted"
    at(sql, _utc(boundary))
    assert rows_and_locks(sql) == before
    assert len(ask(sql, n=5)["claims"]) == 2
    assert ask(sql)["deferred"][0]["reason"] == "window_exhausted"


# What the days of 2024 to 2030 are like, or those of the year in which a place changed its date.
PLACES: dict[str, set[float]] = {
    "UTC": {24},
    "Europe/Berlin": {23, 24, 25},
    "America/New_York": {23, 24, 25},
    "America/Los_Angeles": {23, 24, 25},
    "America/Santiago": {23, 24, 25},
    "Africa/Cairo": {23, 24, 25},
    "Asia/Kolkata": {24},
    "Asia/Kathmandu": {24},
    "Australia/Lord_Howe": {23.5, 24, 24.5},
    "Australia/Sydney": {23, 24, 25},
    "Pacific/Auckland": {23, 24, 25},
    "Pacific/Apia": {24},
    "Pacific/Kiritimati": {24},
}
YEARS = {"Pacific/Apia": (2011, 2012), "Pacific/Kiritimati": (1994, 1995)}


@pytest.mark.both_versions
@pytest.mark.parametrize("place", PLACES)
def test_a_day_opens_at_its_end_and_not_a_microsecond_before_however_long_it_is(
    sql: Sql, server_kind: str, place: str
) -> None:
    first, last = YEARS.get(place, (2024, 2030))
    wall = Wall(zone_files(server_kind), place, datetime(first, 1, 1, tzinfo=UTC), datetime(last, 12, 31, tzinfo=UTC))
    borders = wall.borders("day", timedelta())
    days = {(end - begin) / timedelta(hours=1): (begin, end) for begin, end in pairwise(borders)}
    assert days.keys() >= PLACES[place]
    # Where a date was left out, no day is longer or shorter for it.
    changed = [day for day in pairwise(borders) if any(day[0] <= change <= day[1] for change in wall.changes[1:])]
    weeks = pairwise(wall.borders("week", timedelta(days=2, hours=2, minutes=30)))
    odd_weeks = {end - begin: (begin, end) for begin, end in weeks}
    cases = [(window(2, tz=place), *day) for day in {*days.values(), *(changed if full() or place in YEARS else ())}]
    cases += [(window(2, "week", place, weekday="Wed", start="02:30"), *week) for week in odd_weeks.values()]
    for number, (limit, begin, end) in enumerate(cases):
        check_boundary(sql, f"q{number}", limit, begin, end)


@pytest.mark.parametrize(
    ("place", "start", "minute"),
    [
        ("Asia/Kathmandu", "00:00", 15),
        ("Asia/Kathmandu", "00:20", 35),
        ("Australia/Lord_Howe", "00:00", 30),
        ("Australia/Lord_Howe", "00:45", 15),
        ("Asia/Kolkata", "00:00", 30),
        ("UTC", "00:30", 30),
        ("Europe/Berlin", "00:59", 59),
    ],
)
def test_an_hour_opens_each_3600_seconds_also_while_the_clock_is_changed(
    sql: Sql, place: str, start: str, minute: int
) -> None:
    changes = ["2026-04-04T14:00", "2026-10-03T14:00", "2026-03-29T00:00", "2026-10-25T00:00", "2026-06-10T12:00"]
    for number, text in enumerate(changes):
        begin = _utc(text).replace(minute=minute)
        for hour in range(4):
            at = begin + timedelta(hours=hour)
            check_boundary(sql, f"q{number}-{hour}", window(2, "hour", place, start=start), at, at + timedelta(hours=1))


def check_boundary(sql: Sql, queue: str, limit: dict[str, object], begin: datetime, end: datetime) -> None:
    """A budget of two, used up when its window begins, opens when it ends; the jobs that wait are never written to."""
    jobs = "select j.ctid::text, j.xmin::text, j::text from sluicegate.job j where state = 'pending' order by id"
    at(sql, begin)
    govern(sql, queue, limit, lanes=1 + len(queue) % 3)
    sql.enqueue_many([{"queue": queue}] * 5)
    assert sum(len(ask(sql, queue, n=2)["claims"]) for _ in range(1 + len(queue) % 3)) == 2
    (entry,) = ask(sql, queue)["deferred"]
    assert (datetime.fromisoformat(entry["next_eligible_at"]), entry["exact"]) == (end, True), (queue, limit)
    waiting, before = sql.rows(jobs), rows_and_locks(sql)
    at(sql, end - timedelta(microseconds=1))
    assert ask(sql, queue)["deferred"][0]["reason"] == "window_exhausted"
    assert rows_and_locks(sql) == before
    at(sql, end)
    assert sql.call("admission_status", queue=queue)["queues"][0]["status"] == "admitted"
    assert sql.rows(jobs) == waiting
    assert len(ask(sql, queue)["claims"]) == 1


@pytest.mark.parametrize(("day", "hours"), [("2026-03-08", 23), ("2026-11-01", 25), ("2026-06-01", 24)])
def test_a_day_of_any_length_has_one_budget(sql: Sql, day: str, hours: int) -> None:
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("America/Los_Angeles")).astimezone(UTC)
    at(sql, midnight)
    govern(sql, "q", window(30, tz="America/Los_Angeles"), lanes=3)
    sql.enqueue_many({"queue": "q"} for _ in range(40))
    for _ in range(hours):
        assert len(ask(sql)["claims"]) == 1
        assert used(sql) == opened(sql)
        advance_clock(sql.connection, timedelta(hours=1))
    assert len(ask(sql)["claims"]) == 1
    assert used(sql) == 1
    shown = sql.call("budget_show", queue="q")
    assert [entry["charged"] for entry in shown["windows"]] == [hours]


def test_a_claim_that_waited_across_midnight_is_charged_to_the_new_day(sql: Sql, another: OpenSql) -> None:
    at(sql, _utc("2026-05-05T23:59:59"))
    govern(sql, "q", window(1))
    sql.enqueue_many({"queue": "q"} for _ in range(3))
    holder, waiter = another(), another()
    holder.do("begin")
    holder.one("select 1 from sluicegate.lane for no key update")
    waiting = in_background(waiter.claim)
    wait_blocked(sql, waiter.pid, by=holder.pid)
    at(sql, _utc("2026-05-06T00:00:01"))
    holder.commit()
    (claim,) = waiting.result(30)["claims"]
    assert sql.attempts(claim["job"]["id"])[0]["opened_at"] == _utc("2026-05-06T00:00:01")
    gate = gates(sql)["day"]
    assert (gate["used"], datetime.fromisoformat(gate["starts"])) == (1, _utc("2026-05-06T00:00"))
    assert ask(sql)["deferred"]


def test_a_clock_that_is_set_back_opens_no_window_twice(sql: Sql) -> None:
    at(sql, _utc("2026-05-06T12:00"))
    govern(sql, "q", window(2), lanes=2)
    sql.enqueue_many({"queue": "q"} for _ in range(9))
    assert len(ask(sql, n=9)["claims"]) == 2
    at(sql, _utc("2026-05-05T12:00"))
    assert ask(sql)["deferred"][0]["reason"] == "window_exhausted"
    at(sql, _utc("2026-05-07T00:00"))
    assert len(ask(sql, n=9)["claims"]) == 2


def test_two_limits_close_and_open_each_in_its_turn(sql: Sql) -> None:
    at(sql, _utc("2026-05-06T22:10"))
    govern(sql, "q", window(3), window(2, "hour"), lanes=2)
    sql.enqueue_many({"queue": "q"} for _ in range(12))
    admitted = []
    for when in ("06T22:10", "06T22:59", "06T23:00", "06T23:59", "07T00:00", "07T00:59", "07T01:00"):
        at(sql, _utc(f"2026-05-{when}"))
        admitted.append(len(ask(sql, n=9)["claims"]))
    assert admitted == [2, 0, 1, 0, 2, 0, 1]


def test_a_changed_zone_counts_what_was_claimed_in_its_own_day(sql: Sql) -> None:
    at(sql, _utc("2026-05-06T22:00"))
    govern(sql, "q", window(9))
    sql.enqueue_many({"queue": "q"} for _ in range(9))
    ask(sql, n=2)
    at(sql, _utc("2026-05-06T23:00"))
    ask(sql, n=3)
    govern(sql, "q", window(9, tz="Europe/Berlin", start="00:30"))
    assert used(sql) == 3
    at(sql, _utc("2026-05-06T22:30"))
    govern(sql, "q", window(9))
    assert used(sql) == 5


def test_a_pause_ends_by_itself(sql: Sql) -> None:
    at(sql, _utc("2026-05-06T22:00"))
    sql.enqueue()
    sql.call("pause_queue", queue="q", until=_utc("2026-05-06T23:00"))
    (entry,) = ask(sql)["deferred"]
    assert (datetime.fromisoformat(entry["next_eligible_at"]), entry["exact"]) == (_utc("2026-05-06T23:00"), True)
    at(sql, _utc("2026-05-06T23:00"))
    assert len(ask(sql)["claims"]) == 1

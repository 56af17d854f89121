"""The boundary: a closed queue opens at the declared instant, with nothing written to the work that waits."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from sluicegate.testing import advance_clock, freeze_clock
from tests.sql.budgets import ask, gates, govern, opened, rows_and_locks, used, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, in_background, wait_blocked


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

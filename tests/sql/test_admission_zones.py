"""Windows tile time in every zone, against an independent computation on the same zone files."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.sql.verbs import Sql
from tests.sql.zones import Wall, window_of, zone_files
from tests.support.counts import full

ZONES = {
    "UTC": (2025, 2026),
    "Europe/Berlin": (2025, 2026),
    "America/New_York": (2025, 2026),
    "America/Los_Angeles": (2025, 2026),
    "America/Santiago": (2025, 2026),
    "America/Sao_Paulo": (2017, 2018),
    "Africa/Cairo": (2025, 2026),
    "Asia/Kolkata": (2025, 2025),
    "Asia/Kathmandu": (1985, 1986),
    "Australia/Lord_Howe": (2025, 2026),
    "Australia/Sydney": (2025, 2026),
    "Pacific/Apia": (2011, 2012),
    "Pacific/Kiritimati": (1994, 1995),
    "Pacific/Kwajalein": (1993, 1993),
    "Antarctica/Troll": (2025, 2025),
}
PERIODS = [
    ("day", "0 days", timedelta()),
    ("day", "01:30", timedelta(hours=1, minutes=30)),
    ("day", "02:30", timedelta(hours=2, minutes=30)),
    ("day", "23:59", timedelta(hours=23, minutes=59)),
    ("week", "6 days 00:00", timedelta(days=6)),
    ("month", "27 days 02:15", timedelta(days=27, hours=2, minutes=15)),
]


@pytest.mark.both_versions
@pytest.mark.parametrize("zone", ZONES)
def test_every_instant_is_in_the_window_that_the_zone_files_give(sql: Sql, server_kind: str, zone: str) -> None:
    first, last = (2005, 2030) if full() and zone != "UTC" else ZONES[zone]
    begin = datetime(first, 1, 1, tzinfo=UTC)
    end = datetime(last, 12, 31, tzinfo=UTC)
    wall = Wall(zone_files(server_kind), zone, begin - timedelta(days=70), end + timedelta(days=70))
    for period, text, start in PERIODS:
        borders = wall.borders(period, start)
        near = [border for border in borders if begin <= border <= end]
        if period == "day" and not full():
            near = [
                border
                for number, border in enumerate(near)
                if number % 40 == 0 or any(abs(border - change) < timedelta(days=2) for change in wall.changes)
            ]
        instants = sorted(
            {border + step for border in near for step in (timedelta(), timedelta(microseconds=-1), timedelta(hours=5))}
            | {
                change + step
                for change in wall.changes
                for step in (timedelta(), timedelta(seconds=-1))
                if begin <= change <= end
            }
        )
        expected = {instant: window_of(borders, instant) for instant in instants}
        shown = sql.rows(
            "select t.at, w.starts, w.ends from unnest(%s::timestamptz[]) t(at),"
            " sluicegate.window_at(%s, %s, %s::interval, null, t.at) w",
            instants,
            period,
            zone,
            text,
        )
        wrong = {
            row["at"]: (row["starts"], row["ends"], expected[row["at"]])
            for row in shown
            if (row["starts"], row["ends"]) != expected[row["at"]]
        }
        assert len(shown) == len(instants)
        assert not wrong, (period, text, list(wrong.items())[:3])


def test_every_zone_of_the_database_has_a_window_around_now_in_every_period(sql: Sql) -> None:
    wrong = sql.rows(
        """
        select z.name, p.period, w.*
        from pg_timezone_names z
        cross join (values ('day', '02:30'::interval), ('week', '6 days'), ('month', '27 days')) p(period, start)
        cross join generate_series(sluicegate.clock(), sluicegate.clock() + '1 year', '73 days') t(at)
        cross join lateral sluicegate.window_at(p.period, z.name, p.start, null, t.at) w
        where z.name !~ '^(posix|right)/' and not (w.starts <= t.at and t.at < w.ends)
        """
    )
    assert wrong == []


def test_hours_are_steps_of_3600_seconds_through_a_change_of_offset(sql: Sql) -> None:
    (row,) = sql.rows(
        """
        select count(distinct w.starts) as windows, min(w.ends - w.starts) as shortest, max(w.ends - w.starts) as longest
        from generate_series(timestamptz '2026-04-04 00:00+00', '2026-04-06 23:50+00', '10 min') t(at),
            sluicegate.window_at('hour', 'Australia/Lord_Howe', '0 days', '2026-01-01 00:30+00', t.at) w
        """
    )
    assert (row["shortest"], row["longest"]) == (timedelta(hours=1), timedelta(hours=1))
    assert row["windows"] == 73

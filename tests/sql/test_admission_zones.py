"""Windows tile time in every zone, against an independent computation on the same zone files."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from sluicegate.testing import freeze_clock
from tests.sql.budgets import govern, window
from tests.sql.conftest import OpenSql
from tests.sql.verbs import Sql, refused
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
# Not these: copies of all others in folders of their own, and files that stand for whatever the machine has.
USABLE = "z.name !~ '^(posix|right)/' and z.name <> all ('{localtime,posixrules,Factory}')"
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
    first, last = (2018, 2030) if full() and zone != "UTC" else ZONES[zone]
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


# The same zone has many names; each is asked for, and for each different file every period and start.
SLICES = 8
# The file that comes with PostgreSQL 18 ends with a change which its own rule for what comes later contradicts.
CONTRADICTORY = {("America/Ojinaga", 2022)}
STARTS = ["00:00", "01:30", "02:00", "02:30", "23:59"]


def _clock(text: str) -> timedelta:
    hours, minutes = map(int, text.split(":"))
    return timedelta(hours=hours, minutes=minutes)


def _starts(wall: Wall, change: datetime) -> set[str]:
    """Those of every zone, and where the hands of this one jump from, to, and over."""
    jumps = wall.local(change - timedelta(seconds=1)) + timedelta(seconds=1), wall.local(change)
    between = min(jumps) + abs(jumps[1] - jumps[0]) / 2
    return {*STARTS, *(f"{local:%H:%M}" for local in (*jumps, between))}


def _cases(wall: Wall, change: datetime, whole: bool) -> Iterator[tuple[str, str, list[datetime]]]:
    """Periods and starts to look at around a change, each with its borders."""
    if not whole:
        yield "day", "00:00", wall.around(change, "day", timedelta())
        return
    for start in sorted(_starts(wall, change)):
        yield "day", start, wall.around(change, "day", _clock(start))
    change_day = wall.local(change)
    weekday = (change_day - timedelta(days=1)).weekday()
    for days, start in ((6, "00:00"), (change_day.weekday(), "02:30"), (weekday, "23:59")):
        yield "week", f"{days} days {start}", wall.around(change, "week", timedelta(days=days) + _clock(start))
    for days, start in ((0, "00:00"), (min(change_day.day, 28) - 1, "02:30")):
        yield "month", f"{days} days {start}", wall.around(change, "month", timedelta(days=days) + _clock(start))


@pytest.mark.both_versions
@pytest.mark.parametrize("part", range(SLICES))
def test_the_windows_of_every_zone_tile_time_around_every_change_of_its_clock(
    sql: Sql, server_kind: str, part: int
) -> None:
    first, last = (2024, 2028) if full() else (2026, 2026)
    begin, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last, 12, 31, tzinfo=UTC)
    files = zone_files(server_kind)
    names = [row["name"] for row in sql.rows(f"select z.name from pg_timezone_names z where {USABLE} order by z.name")]
    assert len(names) > 500
    groups: dict[bytes, list[str]] = {}
    for name in names:
        groups.setdefault((files / name).read_bytes(), []).append(name)
    looked = 0
    for aliases in sorted(groups.values())[part::SLICES]:
        wall = Wall(files, aliases[0], begin - timedelta(days=130), end + timedelta(days=130))
        changes = [
            change
            for change in wall.changes
            if begin <= change <= end and (aliases[0], change.year) not in CONTRADICTORY
        ] or [begin + timedelta(days=90)]
        for alias in aliases:
            wanted: dict[tuple[str, str, datetime], tuple[datetime, datetime]] = {}
            for change in changes:
                for period, start, borders in _cases(wall, change, alias == aliases[0]):
                    for before, border, after in zip(borders, borders[1:], borders[2:], strict=False):
                        wanted[period, start, border] = (border, after)
                        wanted[period, start, border - timedelta(microseconds=1)] = (before, border)
            shown = sql.rows(
                "select t.period, t.start, t.at, w.starts, w.ends from unnest(%s::text[], %s::text[], %s::timestamptz[])"
                " t(period, start, at), sluicegate.window_at(t.period, %s, t.start::interval, null, t.at) w",
                *map(list, zip(*wanted, strict=True)),
                alias,
            )
            got = {(row["period"], row["start"], row["at"]): (row["starts"], row["ends"]) for row in shown}
            wrong = {case: (got[case], window) for case, window in wanted.items() if got[case] != window}
            assert not wrong, (alias, len(wrong), list(wrong.items())[:3])
            looked += len(wanted)
    assert looked > 2_000


@pytest.mark.both_versions
def test_a_policy_takes_zones_of_the_database_by_exactly_their_names(sql: Sql) -> None:
    """Not in other letter case, nor what PostgreSQL takes beside names, nor files that stand for no place."""
    names = [row["name"] for row in sql.rows(f"select z.name from pg_timezone_names z where {USABLE} order by z.name")]
    wanted = {"CET", "EET", "MET", "WET", "EST", "UTC", "GMT0", "Etc/GMT+8", "Asia/Kathmandu", *names[::60]}
    assert wanted <= {*names}
    for name in wanted:
        policy = {"limits": [{"max_claims_per_window": 1, "window": {"period": "day", "tz": name}}]}
        assert sql.call("set_admission_policy", queue="q", policy=policy)["limits"][0]["window"]["tz"] == name
    for name in ("posix/UTC", "localtime", "Factory", "utc", "europe/berlin", "CEST", ":UTC", "UTC0", "<+03>-3", ""):
        policy = {"limits": [{"max_claims_per_window": 1, "window": {"period": "day", "tz": name}}]}
        with refused(sql, "SG001", "window.tz"):
            sql.call("set_admission_policy", queue="q", policy=policy)


@pytest.mark.both_versions
def test_what_a_session_has_set_moves_no_window(sql: Sql, another: OpenSql) -> None:
    freeze_clock(sql.connection)
    odd = another()
    for setting in (
        "timezone = 'Australia/Sydney'",
        "timezone_abbreviations = 'Australia'",
        "intervalstyle = 'sql_standard'",
        "datestyle = 'SQL, DMY'",
        "extra_float_digits = -15",
    ):
        odd.do(f"set {setting}")
    limits = [
        window(9, "week", "MET", weekday="Sun", start="23:45"),
        window(9, "month", "EST", day=28, start="02:30"),
        window(9, "day", "CET", start="02:30"),
        window(9, "hour", "Asia/Kathmandu", start="00:10"),
    ]
    for queue, member in (("plain", sql), ("odd", odd)):
        govern(member, queue, *limits)
        member.enqueue(queue)
        member.take_one(queue)
    plain, strange = (
        [(b["period"], b["tz"], b["starts_at"], b["origin"], b["starts"], b["ends"]) for b in windows]
        for windows in (
            sql.rows(
                "select b.*, w.starts, w.ends from sluicegate.budget_window b join sluicegate.queue q on q.id = b.queue_id"
                " cross join sluicegate.window_at(b.period, b.tz, b.starts_at, b.origin, sluicegate.clock()) w"
                " where q.name = %s order by b.id",
                queue,
            )
            for queue in ("plain", "odd")
        )
    )
    assert plain == strange
    assert sql.call("budget_show", queue="plain")["limits"] == odd.call("budget_show", queue="odd")["limits"]
    assert len({tuple(row["starts"]) for row in sql.rows("select starts from sluicegate.lane")}) == 1


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

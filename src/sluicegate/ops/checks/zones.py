"""Whether server and Python know the same rules of local time. The places were chosen because their rules changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import psycopg

from sluicegate.ops.checks.result import Check, Look

WHY = "Calendar windows follow the server's time zones; Python's are for display, so a difference shows other times than are kept."

# A zone, and an instant at which old and new zone data differ.
PROBES = (
    ("America/Vancouver", datetime(2026, 12, 15, 12, tzinfo=UTC)),
    ("America/Asuncion", datetime(2026, 7, 15, 12, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2026, 7, 15, 12, tzinfo=UTC)),
)
_MAY = """
select bool_and(coalesce(has_table_privilege(to_regclass(t), 'select'), false))
from unnest('{sluicegate.policy_limit,sluicegate.budget_window}'::text[]) t
"""
_USED = "select distinct b.tz from sluicegate.policy_limit l join sluicegate.budget_window b on b.id = l.window_id"
_OFFSET = "select extract(epoch from (%(at)s::timestamptz at time zone %(zone)s) - (%(at)s::timestamptz at time zone 'UTC'))::integer"


def check_zones(look: Look) -> Check:
    row = look.cursor.execute("select count(*) from pg_timezone_names", prepare=False).fetchone()
    listed = row[0] if row is not None else 0
    probes = [(zone, at, _server(look, zone, at), _python(zone, at)) for zone, at in PROBES]
    facts: dict[str, object] = {
        "listed": listed,
        "probes": [
            {"zone": zone, "at": at.isoformat(), "server": _text(server), "python": _text(python)}
            for zone, at, server, python in probes
        ],
    }
    shown = [
        f"{zone} on {at:%Y-%m-%d} {_text(server) or 'unknown'}"
        + ("" if server == python else f" (Python: {_text(python) or 'unknown'})")
        for zone, at, server, python in probes
    ]
    found = f"The server lists {listed} time zones. Of three whose rules have changed lately: {', '.join(shown)}."
    if listed == 0 or any(server is None for _, _, server, _ in probes):
        step = "Install the operating system's time zone data on the server's machine (Debian: apt-get install tzdata), or use the embedded server, which brings its own."
        return Check("zones", "fail", found, WHY, step, facts=facts)
    if any(python is None for *_, python in probes):
        return Check("zones", "warn", found, WHY, "Install zone data for Python: pip install tzdata", facts=facts)
    if differing := {zone for zone, _, server, python in probes if server != python}:
        used = _used(look)
        facts["used"] = None if used is None else sorted(used & differing)
        if used is not None and not used & differing:
            return Check("zones", "ok", f"{found} No budget uses a zone that differs.", WHY, facts=facts)
        step = (
            "If Python's is the older one, times are shown wrong: update this machine's zone data (Debian: apt-get install tzdata), which "
            "Python takes before the tzdata package's. Else budgets in these zones follow old rules until the server's "
            "is updated: its machine's tzdata, or for the private PostgreSQL a newer release of its wheel."
        )
        return Check("zones", "warn", found, WHY, step, facts=facts)
    return Check("zones", "ok", found, WHY, facts=facts)


def _used(look: Look) -> set[str] | None:
    """The zones of budgets, None where our role may not see them."""
    may = look.cursor.execute(_MAY, prepare=False).fetchone()
    if may != (True,):
        return None
    return {tz for (tz,) in look.cursor.execute(_USED, prepare=False)}


def _server(look: Look, zone: str, at: datetime) -> timedelta | None:
    try:
        row = look.cursor.execute(_OFFSET, {"at": at, "zone": zone}, prepare=False).fetchone()
    except psycopg.errors.InvalidParameterValue:
        return None
    return None if row is None else timedelta(seconds=row[0])


def _python(zone: str, at: datetime) -> timedelta | None:
    try:
        return at.astimezone(ZoneInfo(zone)).utcoffset()
    except ZoneInfoNotFoundError:
        return None


def _text(offset: timedelta | None) -> str | None:
    if offset is None:
        return None
    minutes = round(offset / timedelta(minutes=1))
    return f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"

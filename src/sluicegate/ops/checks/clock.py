"""The one clock of every decision, and whether somebody has moved it."""

from __future__ import annotations

from sluicegate.ops.checks.result import Check, Look
from sluicegate.sql.state import schema_state

WHY = "Leases, due times and backoff are decided by sluicegate.clock() alone; tests move it, and nothing else should."

_READ = "select c.shown::text, extract(epoch from c.shown - c.now)::float8 from (select sluicegate.clock() as shown, clock_timestamp() as now) c"


def check_clock(look: Look) -> Check:
    row = look.cursor.execute(_READ, prepare=False).fetchone()
    assert row is not None
    shown, off = row
    replaced = schema_state(look.cursor.connection).clock_replaced
    facts = {"clock": shown, "replaced": replaced, "seconds_off": round(off, 3)}
    if not replaced:
        return Check("clock", "ok", f"sluicegate.clock() is the server's clock and shows {shown}.", WHY, facts=facts)
    found = f"sluicegate.clock() was replaced: it shows {shown}, {off:+.0f} s from the server's clock."
    return Check(
        "clock",
        "fail",
        found,
        WHY,
        "If no test is running, run: sluicegate migrate (it restores the clock)",
        facts=facts,
    )

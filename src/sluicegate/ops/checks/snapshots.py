"""The oldest snapshot, which keeps every dead row version since then, and who holds it."""

from __future__ import annotations

from sluicegate.ops.checks.result import Check, Look, Status
from sluicegate.sql.sessions import hidden_sessions, snapshot_holders

WHY = "A queue turns its rows over; nothing that died after the oldest snapshot can be removed, and claims slow down reading past it."

WARN_SECONDS, FAIL_SECONDS = 60, 3600


def check_snapshots(look: Look) -> Check:
    holders = snapshot_holders(look.cursor)
    hidden = hidden_sessions(look.cursor)
    facts: dict[str, object] = {
        "hidden_sessions": hidden,
        "holders": [
            {
                "pid": h.pid,
                "application": h.application,
                "state": h.state,
                "seconds": h.seconds,
                "transactions": h.transactions,
            }
            for h in holders[:5]
        ],
    }
    unseen = f" {hidden} sessions of other roles cannot be looked into." if hidden else ""
    advice = "To see them: grant pg_read_all_stats to this role."
    if not holders:
        found = f"Nobody holds a snapshot.{unseen}"
        return Check("snapshots", "warn" if hidden else "ok", found, WHY, advice if hidden else None, facts=facts)
    oldest = max(holders, key=lambda h: (h.seconds is None and h.state == "inactive", h.seconds or 0.0))
    age = f"{oldest.seconds:.0f} s old" if oldest.seconds is not None else f"{oldest.transactions} transactions old"
    found = f"The oldest snapshot is {age}, held by {oldest.words}.{unseen}"
    seconds = oldest.seconds or 0.0
    if seconds < WARN_SECONDS and not (oldest.seconds is None and oldest.state == "inactive"):
        return Check("snapshots", "warn" if hidden else "ok", found, WHY, advice if hidden else None, facts=facts)
    step = (
        "End that transaction, or end it from here; idle_in_transaction_session_timeout keeps it from happening again."
    )
    status: Status = "fail" if seconds >= FAIL_SECONDS else "warn"
    return Check("snapshots", status, found, WHY, step, (oldest.remedy,), facts)

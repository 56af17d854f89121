"""Policies that cannot be read or evaluated: their queues admit nothing."""

from __future__ import annotations

from sluicegate.ops.checks.result import Check, Look, may_call, not_looked_at

WHY = "A queue whose policy cannot be evaluated admits nothing, since a budget that cannot be read must not be passed."
STEP = (
    "Set all limits of the queue anew: sluicegate queue budget set; or clear its policy and set it again. "
    "What was charged stays on record. If a table is locked or not there, see who did that."
)
_SHOWN = 5


def check_policies(look: Look) -> Check:
    if not may_call(look, "broken_policies"):
        return not_looked_at("policies", WHY)
    row = look.cursor.execute("select sluicegate.broken_policies()", prepare=False).fetchone()
    broken = row[0] if row is not None else []
    facts: dict[str, object] = {"broken": broken}
    if not broken:
        return Check("policies", "ok", "Every policy can be evaluated.", WHY, facts=facts)
    named = "; ".join(f"{one['queue']} of {one['scope']} ({one['fault'].rstrip('.')})" for one in broken[:_SHOWN])
    more = f"; and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
    return Check("policies", "fail", f"These queues admit nothing: {named}{more}.", WHY, STEP, facts=facts)

"""Whether the schema is the one this library ships."""

from __future__ import annotations

from sluicegate.ops.checks.result import Check, Look, Status
from sluicegate.sql.state import schema_state

WHY = "The rules of the queue are functions in the database; a library must find the ones it was written for."

_UNFINISHED = (
    "select version, name, started_at::text from sluicegate.migration where applied_at is null order by version"
)


def check_schema(look: Look) -> Check:
    state = schema_state(look.cursor.connection)
    status: Status = "ok" if state.state == "ok" else "warn" if state.usable else "fail"
    found, step = state.message, state.next_step
    facts: dict[str, object] = {
        "state": state.state,
        "version": state.version,
        "latest": state.latest,
        "pending": list(state.pending),
        "replaced_functions": list(state.replaced_functions),
    }
    changed = [name for name in state.replaced_functions if name != "clock"]
    if changed:
        found += f" Replaced by hand: {', '.join(changed)}."
        step = step or "Run: sluicegate migrate"
    if state.state not in {"missing", "ok"}:
        for version, name, started in look.cursor.execute(_UNFINISHED, prepare=False).fetchall():
            found += f" Migration {version:04d}_{name} was begun at {started} and is not finished."
            step = "Run: sluicegate migrate (it goes on where the other one ended)"
    return Check("schema", status, found, WHY, step, facts=facts)

"""First policies that cannot open, because a transaction that may have claimed without them does not end."""

from __future__ import annotations

from typing import Any

from sluicegate.ops.checks.result import Check, Look, may_call, not_looked_at

WHY = "A first policy admits nothing until every claim that may not have seen it has ended; until then claims answer busy."

# How long, in seconds, such a transaction may last before it is named, and before it is a failure.
WARN_SECONDS, FAIL_SECONDS = 10, 300

_READ = """\
select o.entry ->> 'scope', o.entry ->> 'queue', a.entry,
    extract(epoch from clock_timestamp() - (a.entry ->> 'since')::timestamptz)::float8
from jsonb_array_elements(sluicegate.opening_policies()) with ordinality as o(entry, ord)
left join lateral jsonb_array_elements(o.entry -> 'awaited') with ordinality as a(entry, ord) on true
order by o.ord, a.ord
"""


def check_opening(look: Look) -> Check:
    if not may_call(look, "opening_policies"):
        return not_looked_at("opening", WHY)
    rows = look.cursor.execute(_READ, prepare=False).fetchall()
    queues = [*dict.fromkeys((scope, queue) for scope, queue, _, _ in rows)]
    # Who cannot be looked into may have been there for long.
    lasting = [row for row in rows if row[2] is not None and (row[3] is None or row[3] >= WARN_SECONDS)]
    facts: dict[str, object] = {
        "opening": [{"scope": scope, "queue": queue} for scope, queue in queues],
        "holders": [{"scope": scope, "queue": queue, **entry, "seconds": age} for scope, queue, entry, age in lasting],
    }
    if not queues:
        return Check("opening", "ok", "No queue waits for its first policy to open.", WHY, facts=facts)
    named = ", ".join(f"{queue} of {scope}" for scope, queue in queues[:5]) + (", …" if len(queues) > 5 else "")
    if not lasting:
        found = f"The first policy opens with the next claim, or when it is set again: {named}."
        return Check("opening", "ok", found, WHY, facts=facts)
    words = "; ".join(dict.fromkeys(_words(entry, age) for _, _, entry, age in lasting[:5]))
    ages = [age for *_, age in lasting if age is not None]
    return Check(
        "opening",
        "fail" if ages and max(ages) >= FAIL_SECONDS else "warn",
        f"The first policy of {named} cannot open while a claim that was in the air lasts: {words}.",
        WHY,
        "End that transaction, or end it from here; then the next claim opens the queue.",
        tuple(dict.fromkeys(_remedy(entry) for _, _, entry, _ in lasting if entry["pid"] or entry["prepared"])),
        facts,
    )


def _words(entry: dict[str, Any], age: float | None) -> str:
    if entry["prepared"] is not None:
        who = f"prepared transaction {_quoted(entry['prepared'])}"
    elif entry["pid"] is not None:
        details = [f'application "{entry["application"]}"'] if entry["application"] else []
        who = f"pid {entry['pid']} ({', '.join([*details, entry['state'] or 'not to be looked into'])})"
    else:
        who = "a prepared transaction"
    return f"{who}, open for {'an unknown time' if age is None else f'{age:.0f} s'}"


def _remedy(entry: dict[str, Any]) -> str:
    if entry["pid"] is not None:
        return f"select pg_terminate_backend({entry['pid']});"
    return f"rollback prepared {_quoted(entry['prepared'])};"


def _quoted(gid: str) -> str:
    escaped = gid.replace("'", "''")
    return f"'{escaped}'"

"""``sluicegate queue budget show``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate.cli.admission_views import awaited, forgiven, sentence, standing, used, would_have
from sluicegate.cli.arguments import Common
from sluicegate.cli.budgets import QueueName, Whose
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output, columns, count, local

if TYPE_CHECKING:
    from sluicegate.model import Budget


def run(queue: QueueName, /, *, whose: Whose = Whose(), common: Common = Common()) -> None:
    """Show how much of a queue's budget is used, and what waits.

    The policy, what is used of each limit, when it opens again, what
    retries were charged, what was refused, what limits that only count
    would have refused, and the windows before.

    sluicegate queue budget show reviews
    """
    with connected(whose.within(common)) as client:
        found = client.budget(queue)
    counted = {"pending": found.backlog.pending, "pending_exact": found.backlog.exact}
    Output(json=common.json).answer({**found.to_dict(), **counted}, *_lines(found))


def _lines(found: Budget) -> list[str]:
    waiting = count(found.backlog.pending, "job") + ("" if found.backlog.exact else " or more")
    refused = ", ".join(f"{reason} {number:,}" for reason, number in sorted(found.refused.items()))
    facts = [
        ("scope", found.scope),
        ("revision", str(found.revision) if found.status != "ungoverned" else ""),
        ("now", standing(found)),
        ("backlog", waiting),
        ("oldest", local(found.oldest_pending_at)),
        ("next boundary", local(found.next_boundary_at)),
        ("charged for retries", f"{found.charged_for_retries:,}"),
        ("refused", refused),
    ]
    lines = [
        sentence(found),
        *used(found.gates),
        *forgiven(found),
        *map(would_have, found.shadow),
        *awaited(found),
        *(f"  {name}: {value}" for name, value in facts if value),
    ]
    if found.windows:
        zones = len({one.tz for one in found.windows})
        rows = [
            (
                f"{one.period} in {one.tz}" if zones > 1 else one.period,
                local(one.starts),
                local(one.ends),
                f"{one.charged:,}{' or more' if one.partial else ''}",
                f"{one.forgiven:,}",
            )
            for one in found.windows
        ]
        lines += ["", *columns(("PERIOD", "FROM", "TO", "CHARGED", "FORGIVEN"), rows)]
    return lines

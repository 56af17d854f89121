"""``sluicegate queue budget audit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from sluicegate.cli.arguments import Common, whole
from sluicegate.cli.budgets import QueueName, Whose
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output, local, shown_json

if TYPE_CHECKING:
    from sluicegate.model import AuditEntry


def run(
    queue: QueueName,
    /,
    *,
    limit: Annotated[int, whole("limit", "How many, newest first: 1 to 200, 50 unless given.")] = 50,
    whose: Whose = Whose(),
    common: Common = Common(),
) -> None:
    """Show who changed a queue's budget, when, from what to what, and why.

    sluicegate queue budget audit reviews
    """
    with connected(whose.within(common)) as client:
        found = client.budget_audit(queue, limit=limit)
    lines = [line for entry in found.audit for line in _lines(entry)]
    Output(json=common.json).answer(found.to_dict(), *(lines or ["Nobody has changed it."]))


def _lines(entry: AuditEntry) -> list[str]:
    who = ", ".join(
        f"{what} {name}"
        for what, name in (("owner", entry.human), ("endpoint", entry.endpoint), ("database user", entry.database_user))
        if name
    )
    return [
        f"{local(entry.at)}  {entry.verb}  by {who}" + (f": {entry.reason}" if entry.reason else ""),
        f"  before  {shown_json(entry.before)}",
        f"  after   {shown_json(entry.after)}",
    ]

"""``sluicegate admission``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sluicegate.cli.admission_views import awaited, sentence, standing, used
from sluicegate.cli.arguments import Common
from sluicegate.cli.budgets import Whose
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output, count

if TYPE_CHECKING:
    from sluicegate.model import QueueAdmission


def run(
    queue: Annotated[
        str | None, Parameter(name="QUEUE", help="This queue only; all that have a policy unless given.")
    ] = None,
    /,
    *,
    whose: Whose = Whose(),
    common: Common = Common(),
) -> None:
    """Show whether queues admit jobs now, and if not, why and until when.

    sluicegate admission
    sluicegate admission reviews --json
    """
    with connected(whose.within(common)) as client:
        found = client.admission_status(queue)
    lines = [line for one in found.queues for line in _lines(one)]
    Output(json=common.json).answer(
        found.to_dict(), *(lines or ["No queue has a policy: as much may start as is asked for."])
    )


def _lines(found: QueueAdmission) -> list[str]:
    waiting = count(found.pending or 0, "job") + ("" if found.pending_exact else " or more")
    return [sentence(found), f"  now: {standing(found)}; {waiting} waiting", *used(found.gates), *awaited(found)]

"""``sluicegate queue budget reset``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sluicegate.cli.admission_views import change, forgiven
from sluicegate.cli.arguments import Common
from sluicegate.cli.budget_calls import counted
from sluicegate.cli.budgets import QueueName, Reason, Whose
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output


def run(
    queue: QueueName,
    /,
    *,
    period: Annotated[
        str | None, Parameter(help="Of this window only: hour, day, week or month; of all unless given.")
    ] = None,
    reason: Reason = None,
    whose: Whose = Whose(),
    common: Common = Common(),
) -> None:
    """Forgive what the current windows of a queue were charged.

    What is used starts at 0 again; what was charged stays on record, and
    what was forgiven is shown beside it.

    sluicegate queue budget reset reviews --period day --reason refunded
    """
    with connected(whose.within(common)) as client:
        answer = client.reset_usage(queue, period=period, reason=reason)
        document = counted(client, answer)
    Output(json=common.json).answer(document, *change(answer), *forgiven(answer))

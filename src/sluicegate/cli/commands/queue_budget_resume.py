"""``sluicegate queue budget resume``."""

from __future__ import annotations

from sluicegate.cli.admission_views import change
from sluicegate.cli.arguments import Common
from sluicegate.cli.budget_calls import counted
from sluicegate.cli.budgets import QueueName, Reason, Whose
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output


def run(
    queue: QueueName,
    /,
    *,
    reason: Reason = None,
    whose: Whose = Whose(),
    common: Common = Common(),
) -> None:
    """End the pause of a queue.

    Its limits hold as before; what is over budget stays so.

    sluicegate queue budget resume reviews
    """
    with connected(whose.within(common)) as client:
        answer = client.resume(queue, reason=reason)
        document = counted(client, answer)
    Output(json=common.json).answer(document, *change(answer))

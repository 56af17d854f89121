"""``sluicegate queue budget resume``."""

from __future__ import annotations

from sluicegate.cli.admission_views import change, zero_limits
from sluicegate.cli.arguments import Common
from sluicegate.cli.budget_calls import counted, known
from sluicegate.cli.budgets import QueueName, Reason, Whose
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output, amended
from sluicegate.errors import Conflict


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
        try:
            answer = client.resume(queue, reason=reason)
        except Conflict as error:
            now = known(client, queue)
            if now is None or not (zeros := zero_limits(now.gates)):
                raise
            raise amended(
                error,
                next_step=f"Its limit is {', '.join(zeros)}, which no resume ends: "
                "raise it, or take it away with none, by `sluicegate queue budget set`.",
            ) from error
        document = counted(client, answer)
    Output(json=common.json).answer(document, *change(answer))

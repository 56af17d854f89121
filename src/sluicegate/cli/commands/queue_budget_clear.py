"""``sluicegate queue budget clear``."""

from __future__ import annotations

from sluicegate.cli.admission_views import change
from sluicegate.cli.arguments import Common
from sluicegate.cli.budget_calls import counted
from sluicegate.cli.budgets import QueueName, Reason, Revision, Whose
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output


def run(
    queue: QueueName,
    /,
    *,
    reason: Reason = None,
    revision: Revision = None,
    whose: Whose = Whose(),
    common: Common = Common(),
) -> None:
    """Take the policy of a queue away: as much may start as is asked for.

    What was charged stays on record, so a policy that is set again counts it.

    sluicegate queue budget clear reviews --reason 'the quota is gone'
    """
    with connected(whose.within(common)) as client:
        answer = client.clear_policy(queue, reason=reason, revision=revision)
        document = counted(client, answer)
    Output(json=common.json).answer(document, *change(answer))

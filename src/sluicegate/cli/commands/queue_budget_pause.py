"""``sluicegate queue budget pause``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from sluicegate.cli.admission_views import change, new_queue
from sluicegate.cli.arguments import Common, moment
from sluicegate.cli.budget_calls import counted, known
from sluicegate.cli.budgets import QueueName, Reason, Whose
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output


def run(
    queue: QueueName,
    /,
    *,
    until: Annotated[
        datetime | None,
        moment("paused_until", "Until then, a time in ISO 8601 with a zone; until resumed unless given."),
    ] = None,
    reason: Reason = None,
    whose: Whose = Whose(),
    common: Common = Common(),
) -> None:
    """Start no more jobs of a queue for now.

    Its limits stay as they are, what waits keeps its place, and what runs
    goes on.

    sluicegate queue budget pause reviews --reason 'provider is down'
    sluicegate queue budget pause reviews --until 2030-01-31T09:30:00+01:00
    """
    with connected(whose.within(common)) as client:
        is_new = known(client, queue) is None
        answer = client.pause(queue, reason=reason, until=until)
        document = {**counted(client, answer), "new_queue": is_new}
    lines = [*change(answer), *new_queue(queue, is_new=is_new)]
    Output(json=common.json).answer(document, *lines)

"""``sluicegate queue budget set``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from sluicegate.cli.admission_views import change, new_queue
from sluicegate.cli.arguments import Common
from sluicegate.cli.budget_calls import counted, known
from sluicegate.cli.budgets import Limits, QueueName, Reason, Revision, Whose
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output, amended
from sluicegate.errors import Conflict, InvalidArgument

if TYPE_CHECKING:
    from sluicegate import SyncClient
    from sluicegate.model import QueueAdmission

_TRIES = 5


def run(
    queue: QueueName,
    /,
    *,
    limits: Limits = Limits(),
    reason: Reason = None,
    revision: Revision = None,
    whose: Whose = Whose(),
    common: Common = Common(),
) -> None:
    """Set limits on how many jobs of a queue may start, and run at once.

    The limits that are named change, the others stay; none takes one away.
    It holds from the next claim on, and counts what was claimed before in
    the current windows. What runs goes on, even above a lowered limit.
    With --shadow the limits named only count; a limit keeps its mode when
    its number changes, and --enforce makes it one that refuses.

    sluicegate queue budget set reviews --per-day 100 --per-hour 20
    sluicegate queue budget set reviews --per-day none --max-in-flight 4
    sluicegate queue budget set reviews --per-week 500 --shadow
    """
    with connected(whose.within(common)) as client:
        is_new = known(client, queue) is None
        answer = _patched(client, queue, limits, whose, reason, revision)
        document = {**counted(client, answer), "new_queue": is_new}
    lines = [*change(answer), *limits.moved(answer), *new_queue(queue, is_new=is_new)]
    Output(json=common.json).answer(document, *lines)


def _patched(
    client: SyncClient, queue: str, limits: Limits, whose: Whose, reason: str | None, revision: int | None
) -> QueueAdmission:
    for left in reversed(range(_TRIES)):
        now = known(client, queue)
        patch = limits.patch(now)
        seen = revision if revision is not None else 0 if now is None else now.revision
        try:
            return client.patch_policy(queue, patch, reason=reason, revision=seen)
        except Conflict:
            # Somebody changed it in between: what is kept is kept from what it is now.
            if revision is not None or not left:
                raise
        except InvalidArgument as error:
            if error.field != "policy":
                raise
            # No limit would be left: that is another command.
            clear = shlex.join(["sluicegate", "queue", "budget", "clear", *whose.options, queue])
            raise amended(error, next_step=f"To take the policy away: {clear}") from error
    raise AssertionError("unreachable")

"""What the commands about budgets ask the queue before a change and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sluicegate.errors import NotFound, SluicegateError

if TYPE_CHECKING:
    from sluicegate import SyncClient
    from sluicegate.model import QueueAdmission


def counted(client: SyncClient, answer: QueueAdmission) -> dict[str, Any]:
    """The answer to a change with what waits in the queue now, as ``show`` has it; without that if it cannot be told.

    The change has been made, and is to be reported whatever becomes of this second call.
    """
    try:
        now = client.admission_status(answer.queue)
    except SluicegateError:
        return answer.to_dict()
    (queue,) = now.queues
    return {
        **answer.to_dict(),
        "pending": queue.pending,
        "pending_exact": queue.pending_exact,
        "server_time": now.to_dict()["server_time"],
    }


def known(client: SyncClient, queue: str) -> QueueAdmission | None:
    """What a queue is governed by now, None if there is no such queue yet."""
    try:
        (found,) = client.admission_status(queue).queues
    except NotFound:
        return None
    return found

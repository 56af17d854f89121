"""Waiting for closed queues to open instead of asking them again and again."""

from __future__ import annotations

import random
from datetime import datetime

from sluicegate.model import ClaimAnswer, Deferral, QueueDemand

# A raise that nobody told of, as behind a pooler, is found by looking: nobody sleeps for longer, in seconds.
LONGEST = 60.0
_SHORTEST = 0.02
# Many workers do not all come at the boundary's first moment.
_SPREAD = 0.05


def until(at: datetime, now: datetime) -> float:
    """Seconds to wait for an instant that others wait for as well."""
    return min(max((at - now).total_seconds(), _SHORTEST), LONGEST) + random.uniform(0, _SPREAD)


def closed(entry: Deferral | QueueDemand, now: datetime) -> float | None:
    """For how many seconds a closed queue stays so unless workers are told; None if that is not sure."""
    if entry.next_eligible_at is None:
        # Paused until somebody resumes it. Anything else that has no time may end at any moment.
        return LONGEST if entry.reason == "paused" else None
    return until(entry.next_eligible_at, now) if entry.exact else None


def parked(answer: ClaimAnswer, queues: tuple[str, ...]) -> float | None:
    """How many seconds to wait after an answer that brought no claim, None if nobody can tell.

    Only when every queue asked for is closed for a time that is known can nothing come before the first of them opens.
    """
    if {entry.queue for entry in answer.deferred} != set(queues):
        return None
    waits = [closed(entry, answer.server_time) for entry in answer.deferred]
    return None if None in waits else min(wait for wait in waits if wait is not None)

"""Waiting for closed queues to open instead of asking them again and again."""

from __future__ import annotations

import random

from sluicegate.model import ClaimAnswer

# A raise that nobody told of, as behind a pooler, is found by looking: nobody sleeps for longer, in seconds.
LONGEST = 60.0
SHORTEST = 0.02
_SPREAD = 0.05


def parked(answer: ClaimAnswer, queues: tuple[str, ...]) -> float | None:
    """How many seconds to wait after an answer that brought no claim, None if nobody can tell.

    Only when every queue asked for is closed until a time that is known can nothing come before the earliest of them.
    """
    until = [entry.next_eligible_at for entry in answer.deferred if entry.exact and entry.next_eligible_at is not None]
    if len(until) < len(answer.deferred) or {entry.queue for entry in answer.deferred} != set(queues):
        return None
    seconds = (min(until) - answer.server_time).total_seconds()
    # Spread, so that many workers do not all come at the boundary's first moment.
    return min(max(seconds, SHORTEST), LONGEST) + random.uniform(0, _SPREAD)

"""Telling workers of new jobs without a notification for each: PostgreSQL's commits with one wait for each other.

Who hears of a queue looks at once, and again after at most 50 ms until 150 ms have passed. A call that commits within
that time need not tell again. So a client tells of every job at an easy pace, and of some of them at a faster one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# After the start of a call that told, in seconds: another need not tell if it starts by then …
_QUIET = 0.04
# … and has ended by then, with room for a late timer under the 0.15 s of the listeners.
_SEEN = 0.13
# Up to so many tell in a burst, and so many a second: each start is heard of at once as long as there are fewer.
_BURST = 10.0
_PER_SECOND = 80.0
_MOST_QUEUES = 10_000


@dataclass(slots=True)
class _Queue:
    told_at: float = float("-inf")
    tokens: float = _BURST
    at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Call:
    """A call that adds jobs: ``wake`` is whether it tells. Otherwise what was told since ``since`` counts for it."""

    scope: str
    queues: Sequence[str]
    wake: bool
    sent_at: float
    since: float


class Wakes:
    """Of one client. Any thread may call."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], _Queue] = {}
        self._lock = threading.Lock()

    def call(self, scope: str, queues: Iterable[str]) -> Call:
        """Decide for a call that starts now."""
        now = time.monotonic()
        named = tuple(dict.fromkeys(queues))
        with self._lock:
            known = [self._queue(scope, name, now) for name in named]
            wake = any(now - one.told_at > _QUIET or one.tokens >= 1 for one in known)
            for one in known:
                one.tokens = max(0.0, one.tokens - wake)
            return Call(scope, named, wake, now, min((one.told_at for one in known), default=now))

    def done(self, call: Call, added: Iterable[str]) -> bool:
        """The call has committed, with new jobs in the queues ``added``. Whether they have to be told of after all."""
        new = set(added)
        if not call.wake:
            return bool(new) and time.monotonic() - call.since > _SEEN
        with self._lock:
            for name in new:
                one = self._queue(call.scope, name, call.sent_at)
                one.told_at = max(one.told_at, call.sent_at)
        return False

    def _queue(self, scope: str, name: str, now: float) -> _Queue:
        one = self._queues.get((scope, name))
        if one is None:
            if len(self._queues) >= _MOST_QUEUES:
                self._queues.clear()
            one = self._queues[scope, name] = _Queue(at=now)
        one.tokens = min(_BURST, one.tokens + max(0.0, now - one.at) * _PER_SECOND)
        one.at = max(one.at, now)
        return one

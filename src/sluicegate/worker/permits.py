"""Permits: the right to run one job of a queue, had before the job is claimed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType


class Permit(AbstractContextManager["Permit"]):
    """One slot of one queue. It comes back however the block ends that it is entered for, and only once."""

    __slots__ = ("_back", "queue", "taken_at")

    def __init__(self, queue: str, back: Callable[[Permit], None]) -> None:
        self.queue = queue
        self.taken_at = time.monotonic()
        self._back: Callable[[Permit], None] | None = back

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the slot back. Again, it changes nothing."""
        back, self._back = self._back, None
        if back is not None:
            back(self)


class Permits:
    """Those of one process. ``held`` are out for claims that are being made or jobs that run."""

    def __init__(self, on_release: Callable[[Permit], None]) -> None:
        self._held: Counter[str] = Counter()
        self._on_release = on_release

    def held(self, queue: str) -> int:
        return self._held[queue]

    @property
    def total(self) -> int:
        return self._held.total()

    def take(self, queue: str) -> Permit:
        """One more for the queue. Whether it may have one is for the caller to know."""
        self._held[queue] += 1
        return Permit(queue, self._released)

    def _released(self, permit: Permit) -> None:
        self._held[permit.queue] -= 1
        self._on_release(permit)

"""Noticing that the database's clock was moved, so that nobody sleeps on towards an instant that has come."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from sluicegate.errors import SluicegateError
from sluicegate.store.notices import listen
from sluicegate.worker.loop import Loop, Pace

_CHANNEL = "sluicegate_clock"


class ClockWatch:
    """Calls ``on_moved`` when somebody moves the clock, and after each time that could have been missed.

    Only a short cut: without it, as behind a pooler or where connections are few, due jobs are found by polling. So
    what keeps it from listening is nobody's business; it tries again.
    """

    def __init__(self, dsn: str, on_moved: Callable[[], None]) -> None:
        self._dsn = dsn
        self._on_moved = on_moved
        self._pace = Pace(0.5, 30.0)
        self.loop = Loop(self._tick)

    async def _tick(self) -> float:
        with contextlib.suppress(SluicegateError):
            await listen(self._dsn, _CHANNEL, self._heard)
        return self._pace.next()

    def _heard(self) -> None:
        self._pace.reset()
        self._on_moved()

"""Noticing what makes an instant come sooner, so that nobody sleeps on towards one that no longer counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from sluicegate.errors import SluicegateError
from sluicegate.store.notices import listen
from sluicegate.worker.loop import Loop, Pace

# The clock was moved; a policy was changed so that something may start earlier than was told.
_CHANNELS = ("sluicegate_clock", "sluicegate_admission")


class Watch:
    """Calls ``on_news`` when waiting may be over, and after each time that could have been missed.

    Only a short cut: without it, as behind a pooler or where connections are few, due jobs and open queues are found
    by polling. So what keeps it from listening is nobody's business; it tries again.
    """

    def __init__(self, dsn: str, on_news: Callable[[], None]) -> None:
        self._dsn = dsn
        self._on_news = on_news
        self._pace = Pace(0.5, 30.0)
        self.loop = Loop(self._tick)

    async def _tick(self) -> float:
        with contextlib.suppress(SluicegateError):
            await listen(self._dsn, _CHANNELS, self._heard)
        return self._pace.next()

    def _heard(self) -> None:
        self._pace.reset()
        self._on_news()

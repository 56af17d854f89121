"""Hearing of jobs and of queues that open, so that nobody sleeps on while there is something to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Protocol

from sluicegate.errors import SluicegateError
from sluicegate.store.notices import listen
from sluicegate.worker.loop import Loop, Pace

_JOBS = "sluicegate_jobs"
# The clock was moved; a policy was changed so that something may start earlier than was told; jobs were added, or a slot freed.
_CHANNELS = ("sluicegate_clock", "sluicegate_admission", _JOBS)


class News(Protocol):
    """What is called when there may be something to do."""

    def __call__(self, *, opened: bool) -> None: ...


class Watch:
    """Calls ``on_news`` when waiting for one of ``queues`` may be over, and after each time that could have been missed;
    ``opened`` when a policy was changed, or may have been.

    Only a short cut: without it, as behind a pooler or where connections are few, due jobs and open queues are found
    by polling. So what keeps it from listening is nobody's business; it tries again. ``on_lost`` is called when it does not listen any more.
    """

    def __init__(self, dsn: str, queues: Iterable[str], on_news: News, on_lost: Callable[[], None]) -> None:
        self._dsn = dsn
        self._marks = {_mark(queue) for queue in queues}
        self._on_news = on_news
        self._on_lost = on_lost
        self.listens = False
        self._pace = Pace(0.5, 5.0)
        self.loop = Loop(self._tick)

    async def _tick(self) -> float:
        with contextlib.suppress(SluicegateError):
            await listen(self._dsn, _CHANNELS, self._heard)
        self.listens = False
        self._on_lost()
        return self._pace.next()

    def _heard(self, channel: str, payload: str) -> None:
        self.listens = True
        self._pace.reset()
        if channel != _JOBS or payload in self._marks:
            self._on_news(opened=channel != _JOBS)


def _mark(queue: str) -> str:
    """How a notification names a queue: as wake_workers does in SQL."""
    return sha256(queue.encode()).digest()[:8].hex()

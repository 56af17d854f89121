"""The one life of everything that loops: started once, woken early, stopped softly, backing off while the database is away."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable

from sluicegate.errors import Unavailable

# Whoever is asked for so long, in seconds, cannot be said to answer.
_SLOW = 5.0


class Pace:
    """Growing pauses in seconds, from ``least`` doubling to ``most``, each varied by a fifth; ``reset`` starts anew."""

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most
        self._pause = least

    def next(self) -> float:
        pause, self._pause = self._pause, min(self._pause * 2, self._most)
        return pause * random.uniform(0.8, 1.2)

    def reset(self) -> None:
        self._pause = self._least


class Lookout:
    """How long to wait before looking for jobs again. Soon, for a while after news: whoever told of a job may not have
    told of those that came right after it (``ops/wakes.py``). And no later than ``poll`` while nobody ``hears`` of news."""

    _SOON = 0.045
    _WHILE = 0.15

    def __init__(self, pace: Pace, hears: Callable[[], bool] = lambda: True, poll: float = float("inf")) -> None:
        self._pace = pace
        self._hears = hears
        self._poll = poll
        self._until = float("-inf")

    def news(self) -> None:
        self._until = time.monotonic() + self._WHILE
        self._pace.reset()

    def found(self) -> None:
        """There was something: the next pause is a short one."""
        self._pace.reset()

    def wait(self, known: float | None = None) -> float:
        """Seconds: as long as it is ``known`` that nothing comes, else a growing pause."""
        seconds = self._pace.next() if known is None else known
        if time.monotonic() <= self._until:
            return min(seconds, self._SOON)
        return seconds if self._hears() else min(seconds, self._poll)


class Loop:
    """Calls ``tick`` again and again; it answers how many seconds to wait, None to end.

    ``wake`` cuts the wait short, and a call during a tick is not lost. Unavailable means to try again later, and
    ``away`` is told; so does a tick that takes longer than ``patience`` seconds, which is broken off. ``away`` is told of
    a slow one sooner. Any other error ends the loop and is raised by ``wait``. ``stop`` ends it, breaking off a tick that
    runs; stopping twice, or before the start, is fine. ``pause`` is how long it waits at this moment, 0 while it ticks.
    """

    def __init__(
        self,
        tick: Callable[[], Awaitable[float | None]],
        *,
        away: Callable[[Unavailable], None] | None = None,
        backoff: Pace | None = None,
        patience: float | None = None,
    ) -> None:
        self._tick = tick
        self._patience = patience
        self._away = away
        self._backoff = backoff or Pace(0.1, 2.0)
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.pause = 0.0

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        self._woken.set()

    async def stop(self) -> None:
        """Break the loop off, if it still runs, and return when it has ended. Its errors are ``wait``'s to raise."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.exception()

    async def wait(self) -> None:
        """Return when the loop has ended by itself; raises the error that ended it."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                pause = await self._patiently()
            except Unavailable as error:
                if self._away is not None:
                    self._away(error)
                pause = self._backoff.next()
            else:
                self._backoff.reset()
            if pause is None:
                return
            self.pause = pause
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if pause == float("inf") else pause):
                    await self._woken.wait()
            self.pause = 0.0

    async def _patiently(self) -> float | None:
        """One tick. A connection whose other end has gone silently would otherwise be waited for without end."""
        if self._patience is None:
            return await self._tick()
        slow = None
        if self._away is not None:
            slow = asyncio.get_running_loop().call_later(
                _SLOW, self._away, Unavailable(f"PostgreSQL has not answered for {_SLOW:g} s.")
            )
        limit = asyncio.timeout(self._patience)
        try:
            async with limit:
                return await self._tick()
        except TimeoutError:
            if not limit.expired():
                raise
            raise Unavailable(f"PostgreSQL has not answered for {self._patience:g} s.") from None
        finally:
            if slow is not None:
                slow.cancel()

"""The one life of everything that loops: started once, woken early, stopped softly, backing off while the database is away."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

from sluicegate.errors import Unavailable


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


class Loop:
    """Calls ``tick`` again and again; it answers how many seconds to wait, None to end.

    ``wake`` cuts the wait short, and a call during a tick is not lost. Unavailable means to try again later, and
    ``away`` is told. Any other error ends the loop and is raised by ``wait``. ``stop`` ends it, breaking off a tick that runs; stopping twice, or before the start, is fine.
    """

    def __init__(
        self,
        tick: Callable[[], Awaitable[float | None]],
        *,
        away: Callable[[Unavailable], None] | None = None,
        backoff: Pace | None = None,
    ) -> None:
        self._tick = tick
        self._away = away
        self._backoff = backoff or Pace(0.1, 2.0)
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

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
                pause = await self._tick()
            except Unavailable as error:
                if self._away is not None:
                    self._away(error)
                pause = self._backoff.next()
            else:
                self._backoff.reset()
            if pause is None:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if pause == float("inf") else pause):
                    await self._woken.wait()

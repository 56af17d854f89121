"""The attempts that run at this moment, at most one in each slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Protocol

from sluicegate.model import Claim, FinishItem
from sluicegate.worker.ended import Ended
from sluicegate.worker.events import Tally
from sluicegate.worker.leases import HeldLease, LeaseKeeper
from sluicegate.worker.loop import Pace
from sluicegate.worker.verdict import Interruption

# What is not over so many seconds after it should have ended, since its worker ends, is left to itself.
_LAST_PATIENCE = 1.0


class RunningAttempt(Protocol):
    """One attempt of one job. ``trouble`` says, after ``run``, that this machine could not start it, and why."""

    claim: Claim
    lease: HeldLease
    why_lost: str
    seconds: float | None
    exit_code: int | None
    trouble: str | None

    async def run(self) -> FinishItem | None:
        """Do the job; None if its lease was lost, so that there is nothing to report."""

    def broken_off(self) -> FinishItem | None:
        """The task of ``run`` was cancelled, perhaps before its first step: what to report, None if nothing."""

    def interrupt(self, why: Interruption, grace: float) -> None:
        """End it; what does not listen is killed after ``grace`` seconds, if it can be."""

    def leave(self) -> str | None:
        """It has not listened and cannot be killed: what to tell if its worker ends without it; None to wait on."""


# Of a claim, the moment its call was sent and the length of its lease.
MakeAttempt = Callable[[Claim, float, float], RunningAttempt]


class Crew:
    """Runs attempts and hands their finishes to ``on_ended``, None where there is nothing to report.

    What ``start`` is given to hold is let go when nothing of the attempt is left. ``left`` tells of those that still run
    although their worker has ended.
    """

    def __init__(
        self, make: MakeAttempt, keeper: LeaseKeeper, tally: Tally, on_ended: Callable[[Ended | None], None]
    ) -> None:
        self._make = make
        self._keeper = keeper
        self._tally = tally
        self._on_ended = on_ended
        self._running: dict[RunningAttempt, AbstractContextManager[object]] = {}
        # The event loop itself holds its tasks weakly.
        self._tasks: set[asyncio.Task[FinishItem | None]] = set()
        self._left: dict[RunningAttempt, str] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._trouble = Pace(1.0, 30.0)
        self._rest_until = 0.0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(self._left.values())

    @property
    def rest(self) -> float:
        """For how many seconds nothing should be started, because this machine just could not."""
        return max(0.0, self._rest_until - time.monotonic())

    def start(
        self, claim: Claim, *, sent_at: float, length: float, holding: AbstractContextManager[object] | None = None
    ) -> None:
        """Do the job. Its lease lasts ``length`` seconds from ``sent_at``, a time of ``time.monotonic()``."""
        attempt = self._make(claim, sent_at, length)
        self._keeper.hold(attempt.lease)
        self._idle.clear()
        self._running[attempt] = holding or nullcontext()
        task = asyncio.create_task(attempt.run())
        self._tasks.add(task)
        # A callback, and no task around it: it comes even for a task that is cancelled before its first step.
        task.add_done_callback(partial(self._over, attempt))

    def interrupt(self, why: Interruption, grace: float) -> None:
        """End every running attempt. Of a worker that ends, what does not listen is left behind a moment after ``grace``."""
        for attempt in list(self._running):
            attempt.interrupt(why, grace)
        if self._running and why is Interruption.STOPPED:
            asyncio.get_running_loop().call_later(grace + _LAST_PATIENCE, self._leave)

    async def idle(self) -> None:
        """Return when nothing runs."""
        await self._idle.wait()

    async def fault(self) -> None:
        """Raise what an attempt should never have raised; waits for ever otherwise."""
        await asyncio.shield(self._fault)

    def _over(self, attempt: RunningAttempt, task: asyncio.Task[FinishItem | None]) -> None:
        """Its task has ended, however that came."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if self._left.pop(attempt, None) is not None:
            return
        late = self._keeper.has_run_out(attempt.claim)
        self._free(attempt)
        if error is not None:
            if not self._fault.done():
                self._fault.set_exception(error)
            return
        item = attempt.broken_off() if task.cancelled() else task.result()
        if attempt.trouble is None:
            self._trouble.reset()
        else:
            self._rest_until = time.monotonic() + self._trouble.next()
        if item is None or late:
            self._lose(attempt, attempt.why_lost)
        else:
            self._on_ended(Ended(attempt.claim, item, attempt.seconds, attempt.exit_code))

    def _leave(self) -> None:
        for attempt in list(self._running):
            if why := attempt.leave():
                self._left[attempt] = why
                self._free(attempt)
                self._lose(attempt, why)

    def _free(self, attempt: RunningAttempt) -> None:
        attempt.lease.holder = None
        with self._running.pop(attempt):
            if not self._running:
                self._idle.set()

    def _lose(self, attempt: RunningAttempt, why: str) -> None:
        self._keeper.drop(attempt.claim)
        self._tally.lost(attempt.claim, why, attempt.seconds)
        self._on_ended(None)

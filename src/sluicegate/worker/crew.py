"""The attempts that run at this moment, at most one in each slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from sluicegate.model import Claim, FinishItem
from sluicegate.worker.ended import Ended
from sluicegate.worker.events import Tally
from sluicegate.worker.leases import HeldLease, LeaseKeeper
from sluicegate.worker.loop import Pace
from sluicegate.worker.verdict import Interruption


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

    def interrupt(self, why: Interruption, grace: float) -> None:
        """End it; what does not listen is killed after ``grace`` seconds, if it can be."""


# Of a claim, the moment its call was sent and the length of its lease.
MakeAttempt = Callable[[Claim, float, float], RunningAttempt]


class Crew:
    """Runs attempts and hands their finishes to ``on_ended``, None where there is nothing to report.

    What ``start`` is given to hold is let go when nothing of the attempt is left.
    """

    def __init__(
        self, make: MakeAttempt, keeper: LeaseKeeper, tally: Tally, on_ended: Callable[[Ended | None], None]
    ) -> None:
        self._make = make
        self._keeper = keeper
        self._tally = tally
        self._on_ended = on_ended
        self._running: dict[RunningAttempt, asyncio.Task[None]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._trouble = Pace(1.0, 30.0)
        self._rest_until = 0.0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def rest(self) -> float:
        """For how many seconds no command should be started, because this machine just could not."""
        return max(0.0, self._rest_until - time.monotonic())

    def start(
        self, claim: Claim, *, sent_at: float, length: float, holding: AbstractContextManager[object] | None = None
    ) -> None:
        """Do the job. Its lease lasts ``length`` seconds from ``sent_at``, a time of ``time.monotonic()``."""
        attempt = self._make(claim, sent_at, length)
        self._keeper.hold(attempt.lease)
        self._idle.clear()
        held = holding or nullcontext()
        task = self._running[attempt] = asyncio.create_task(self._work(attempt, held))
        task.add_done_callback(lambda _: self._never_began(attempt, held))

    def interrupt(self, why: Interruption, grace: float) -> None:
        """End every running command."""
        for attempt in list(self._running):
            attempt.interrupt(why, grace)

    async def idle(self) -> None:
        """Return when nothing runs."""
        await self._idle.wait()

    async def fault(self) -> None:
        """Raise what an attempt should never have raised; waits for ever otherwise."""
        await asyncio.shield(self._fault)

    async def _work(self, attempt: RunningAttempt, holding: AbstractContextManager[object]) -> None:
        try:
            with holding:
                item = await attempt.run()
        except Exception as error:  # noqa: BLE001 - whoever waits for the crew raises it
            if not self._fault.done():
                self._fault.set_exception(error)
            return
        except asyncio.CancelledError:
            # Nobody of ours does that: somebody cancels tasks that are not his. What becomes of the job is its lease's to say.
            attempt.interrupt(Interruption.STOPPED, 0)
            self._lose(attempt, "The task that watched over it was cancelled.")
            raise
        finally:
            attempt.lease.running = False
            del self._running[attempt]
            if not self._running:
                self._idle.set()
        if attempt.trouble is None:
            self._trouble.reset()
        else:
            self._rest_until = time.monotonic() + self._trouble.next()
        if item is None:
            self._lose(attempt, attempt.why_lost)
        else:
            self._on_ended(Ended(attempt.claim, item, attempt.seconds, attempt.exit_code))

    def _never_began(self, attempt: RunningAttempt, holding: AbstractContextManager[object]) -> None:
        """A task that is cancelled before its first step runs nothing, not even its end."""
        if self._running.pop(attempt, None) is not None:
            with holding:
                self._lose(attempt, "The task that was to do it was cancelled.")
            if not self._running:
                self._idle.set()

    def _lose(self, attempt: RunningAttempt, why: str) -> None:
        self._keeper.drop(attempt.claim)
        self._tally.lost(attempt.claim, why, attempt.seconds)
        self._on_ended(None)

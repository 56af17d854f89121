"""The attempts that run at this moment, at most one in each slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from sluicegate.model import Claim, FinishItem
from sluicegate.worker.execution import Execution, Tools
from sluicegate.worker.leases import LeaseKeeper
from sluicegate.worker.loop import Pace
from sluicegate.worker.verdict import Interruption


@dataclass(frozen=True, slots=True)
class Ended:
    """A finish that has still to be reported.

    ``seconds`` is how long the command ran, None if it never did; ``exit_code`` what it exited with, if it did.
    """

    claim: Claim
    item: FinishItem
    seconds: float | None = None
    exit_code: int | None = None


class Crew:
    """Runs attempts and hands their finishes to ``on_ended``, None where there is nothing to report.

    A slot is free again when nothing of its command is left.
    """

    def __init__(self, tools: Tools, keeper: LeaseKeeper, on_ended: Callable[[Ended | None], None]) -> None:
        self._tools = tools
        self._keeper = keeper
        self._on_ended = on_ended
        self._running: dict[Execution, asyncio.Task[None]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._trouble = Pace(1.0, 30.0)
        self._rest_until = 0.0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def free(self) -> int:
        return self._tools.terms.concurrency - len(self._running)

    @property
    def rest(self) -> float:
        """For how many seconds no command should be started, because this machine just could not."""
        return max(0.0, self._rest_until - time.monotonic())

    def start(self, claim: Claim, *, sent_at: float, length: float) -> None:
        """Do the job. Its lease lasts ``length`` seconds from ``sent_at``, a time of ``time.monotonic()``."""
        attempt = Execution(self._tools, claim, sent_at=sent_at, length=length)
        self._keeper.hold(attempt.lease)
        self._idle.clear()
        self._running[attempt] = asyncio.create_task(self._work(attempt))

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

    async def _work(self, attempt: Execution) -> None:
        try:
            item = await attempt.run()
        except Exception as error:  # noqa: BLE001 - whoever waits for the crew raises it
            if not self._fault.done():
                self._fault.set_exception(error)
            return
        finally:
            del self._running[attempt]
            if not self._running:
                self._idle.set()
        if attempt.trouble is None:
            self._trouble.reset()
        else:
            self._rest_until = time.monotonic() + self._trouble.next()
        if item is None:
            self._keeper.drop(attempt.claim.job_id)
            self._tools.tally.lost(attempt.claim, attempt.why_lost, attempt.seconds)
            self._on_ended(None)
        else:
            self._on_ended(Ended(attempt.claim, item, attempt.seconds, attempt.exit_code))

"""One run of a worker from its start to its end: the parts that every kind of worker is made of, put together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from sluicegate.client import Client
from sluicegate.worker.crew import Crew, MakeAttempt
from sluicegate.worker.dispatcher import Dispatcher
from sluicegate.worker.ended import Ended
from sluicegate.worker.events import Tally, WorkerEvent
from sluicegate.worker.housekeeping import Housekeeping
from sluicegate.worker.leases import LeaseKeeper, ServerClock
from sluicegate.worker.loop import Loop
from sluicegate.worker.slots import Slots
from sluicegate.worker.stopping import StopRequest
from sluicegate.worker.verdict import KILL_GRACE, Interruption
from sluicegate.worker.watch import Watch

# When told to stop at once, so many seconds are given to telling the database about it.
_LAST_WORDS = 5.0


class Run:
    """Made by ``Run(…)``, then ``staff`` with what does the jobs, then ``until_over`` once and ``close``."""

    def __init__(
        self,
        client: Client,
        *,
        lease_seconds: int | None,
        grace: float,
        on_event: Callable[[WorkerEvent], object] | None,
        stop: StopRequest,
    ) -> None:
        self.stop = stop
        self.tally = Tally(on_event, stop.ask)
        self.clock = ServerClock()
        self._client = client
        self._grace = grace
        self._keeper = LeaseKeeper(client, lease_seconds, tally=self.tally, clock=self.clock, on_answer=self.wake)
        self._housekeeping = Housekeeping(client, self.tally, self.look)

    def staff(self, make: MakeAttempt, slots: Callable[[Crew], Slots], queues: Sequence[str]) -> None:
        """What does a job, who decides which are claimed, and the queues whose news are heard."""
        self._watch = Watch(self._client.dsn, queues, self.look, self._housekeeping.loop.wake)
        self.crew = Crew(make, self._keeper, self.tally, self._ended)
        self.dispatcher = Dispatcher(
            self._client,
            slots(self.crew),
            keeper=self._keeper,
            tally=self.tally,
            clock=self.clock,
            on_fault=lambda error: self.stop.ask(str(error)),
        )

    async def until_over(self) -> None:
        """Run until drained or stopped, then wind up. Whatever goes wrong, nothing is left running."""
        if self.stop.asked.is_set():
            self.dispatcher.close()
        for loop in self._loops:
            loop.start()
        try:
            await self._first(self.dispatcher.loop.wait, self.stop.asked.wait)
            if self.stop.asked.is_set():
                await self._wind_up()
        except BaseException:
            self.stop.at_once.set()
            self.dispatcher.close()
            self.crew.interrupt(Interruption.STOPPED, 0)
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_LAST_WORDS):
                    await self.dispatcher.loop.wait()
            raise

    async def close(self) -> None:
        """End every part. What has not been recorded is told as lost by ``abandon``."""
        for loop in self._loops:
            await loop.stop()

    def abandon(self) -> None:
        self.dispatcher.abandon("The worker ended before the database had recorded it.")

    def raise_faults(self) -> None:
        """Raise what made the run end, if anything did."""
        for fault in (self.tally.fault, self.dispatcher.fault):
            if fault is not None:
                raise fault

    def wake(self) -> None:
        self.dispatcher.loop.wake()

    def look(self, *, opened: bool = False) -> None:
        self.dispatcher.look(opened=opened)

    def hears(self) -> bool:
        """Whether it is told of news at this moment."""
        return self._watch.listens

    async def _wind_up(self) -> None:
        """Let what runs end by itself, then end it, then see that the database knows."""
        self.tally.stopping(self.stop.reason)
        self.dispatcher.close()
        await self._first(self.crew.idle, self.stop.at_once.wait, seconds=self._grace)
        if self.stop.at_once.is_set() and self._grace > 0 and self.crew.running > 0:
            self.tally.stopping("what still runs is ended now, as it was asked to stop again")
        self.crew.interrupt(Interruption.STOPPED, 0 if self.stop.at_once.is_set() else KILL_GRACE)
        await self._first(self.crew.idle, self.stop.at_once.wait)
        self.crew.interrupt(Interruption.STOPPED, 0)
        await self._first(self.dispatcher.loop.wait, self.stop.at_once.wait)
        await self._first(self.dispatcher.loop.wait, seconds=_LAST_WORDS)

    async def _first(self, *waits: Callable[[], Awaitable[object]], seconds: float | None = None) -> None:
        """Return when one of these is over, or after so many seconds; raises what any part of the run raises."""
        watched = (*waits, self.crew.fault, *(loop.wait for loop in self._loops if loop is not self.dispatcher.loop))
        tasks = [asyncio.ensure_future(wait()) for wait in watched]
        try:
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()

    @property
    def _loops(self) -> tuple[Loop, ...]:
        return self.dispatcher.loop, self._keeper.loop, self._housekeeping.loop, self._watch.loop

    def _ended(self, ended: Ended | None) -> None:
        if ended is None:
            self.wake()
        else:
            self.dispatcher.finish(ended)

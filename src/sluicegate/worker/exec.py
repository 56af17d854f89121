"""``exec``: a command for each job of a queue, as a real process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from sluicegate.client import Client
from sluicegate.errors import SluicegateError
from sluicegate.worker.crew import Crew, Ended
from sluicegate.worker.dispatcher import Dispatcher
from sluicegate.worker.events import ExecEvent, ExecReport, Tally
from sluicegate.worker.execution import KILL_GRACE, Tools
from sluicegate.worker.guardian.client import Guardian
from sluicegate.worker.housekeeping import Housekeeping
from sluicegate.worker.leases import LeaseKeeper, ServerClock
from sluicegate.worker.loop import Loop
from sluicegate.worker.payloads import PrivateFolder
from sluicegate.worker.stopping import StopRequest, stopped_by_signals
from sluicegate.worker.surroundings import allow_descriptors, base_environment
from sluicegate.worker.terms import Terms
from sluicegate.worker.verdict import Interruption
from sluicegate.worker.watch import Watch
from sluicegate.worker.words import CommandLine

__all__ = ["ExecEvent", "ExecReport", "StopRequest", "run_exec"]

# When told to stop at once, so many seconds are given to telling the database about it.
_LAST_WORDS = 5.0


async def run_exec(
    client: Client,
    queue: str | Sequence[str],
    command: Sequence[str],
    *,
    concurrency: int = 1,
    lease_seconds: int | None = None,
    timeout: float | None = None,
    drain: bool = False,
    grace: float = 30.0,
    release_delay: float = 60.0,
    on_event: Callable[[ExecEvent], object] | None = None,
    stop: StopRequest | None = None,
) -> ExecReport:
    """Run ``command`` for each job of ``queue`` (one, or several), up to ``concurrency`` (1 to 1,000) at a time.

    Each command gets the payload as JSON on standard input and in the file that SLUICEGATE_PAYLOAD_FILE names, and the
    values of ``{payload.…}`` in its arguments; never a shell, never a DSN. Exit code 0 completes the job with the end
    of standard output as result; 75 gives it back, to run again after ``release_delay`` seconds; everything else fails
    the attempt with the end of standard error. It may run for ``timeout`` seconds (None: for ever), as long as the lease
    of ``lease_seconds`` (1 to 86,400; None: the endpoint's) is kept by heartbeats. When the lease is lost or the job is
    cancelled the command is killed, with all that it started; so it is when this process dies, however that happens.

    Runs until SIGTERM, SIGINT, SIGHUP or ``stop`` asks it to end, or with ``drain`` until nothing can be claimed: what
    is left may be deferred. Without ``drain`` a closed queue is waited for, and asked again when it opens or its
    policy lets it open earlier, at the latest after a minute. When told to end, commands may run on for ``grace`` seconds; the rest is killed and given
    back. A second signal does that at once.

    ``on_event`` is called with what happens, from this task's event loop. Raises InvalidArgument before anything is
    claimed; what makes claiming impossible (Forbidden, NotFound, SchemaMismatch, WrongIsolation) after what runs has
    ended. A database that cannot be reached is waited for.
    """
    terms = Terms.checked(
        queue,
        concurrency=concurrency,
        lease_seconds=lease_seconds,
        timeout=timeout,
        drain=drain,
        grace=grace,
        release_delay=release_delay,
    )
    line = CommandLine(command)
    started_at = time.monotonic()
    run = _Run(client, terms, line, on_event, stop or StopRequest())
    async with AsyncExitStack() as stack:
        stack.push_async_callback(run.close)
        run.open()
        stack.enter_context(stopped_by_signals(run.stop))
        await run.until_over()
    if run.tally.fault is not None:
        raise run.tally.fault
    if run.dispatcher.fault is not None:
        raise run.dispatcher.fault
    return run.tally.report(time.monotonic() - started_at)


class _Run:
    """The parts of one run, put together."""

    def __init__(
        self,
        client: Client,
        terms: Terms,
        line: CommandLine,
        on_event: Callable[[ExecEvent], object] | None,
        stop: StopRequest,
    ) -> None:
        self.stop = stop
        self.tally = Tally(on_event, stop.ask)
        self._terms = terms
        clock = ServerClock()
        self._folder = PrivateFolder()
        self._guardian = Guardian(self._folder.path, base_environment(os.environb, client.dsn))
        tools = Tools(line, terms, self._guardian, self._folder, self.tally, clock, stop.asked.is_set)
        self._keeper = LeaseKeeper(client, terms.lease_seconds, tally=self.tally, clock=clock, on_answer=self._wake)
        self._crew = Crew(tools, self._keeper, self._ended)
        self.dispatcher = Dispatcher(
            client,
            terms,
            crew=self._crew,
            keeper=self._keeper,
            tally=self.tally,
            clock=clock,
            on_fault=lambda error: stop.ask(str(error)),
        )
        self._housekeeping = Housekeeping(client, self.tally)
        self._watch = Watch(client.dsn, self.dispatcher.look)

    def open(self) -> None:
        """Get ready to start commands. Raises SluicegateError if this machine does not allow it."""
        if not hasattr(os, "waitid"):
            raise SluicegateError(
                "exec cannot watch processes safely on this system.",
                next_step="Run it on Linux, or with Python 3.13 or newer.",
            )
        allow_descriptors(self._terms.concurrency)
        try:
            self._guardian.open()
            self._folder.make()
            self._folder.remove_left_behind()
        except OSError as error:
            raise SluicegateError(
                f"exec cannot prepare to run commands: {error}.",
                next_step="Free processes, memory or space, or let TMPDIR name a folder that can be written to.",
            ) from error

    async def until_over(self) -> None:
        """Run until drained or stopped, then wind up. Whatever goes wrong, nothing is left running."""
        for loop in self._loops:
            loop.start()
        try:
            await self._first(self.dispatcher.loop.wait, self.stop.asked.wait)
            if self.stop.asked.is_set():
                await self._wind_up()
        except BaseException:
            self.stop.at_once.set()
            self.dispatcher.close()
            self._crew.interrupt(Interruption.STOPPED, 0)
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_LAST_WORDS):
                    await self.dispatcher.loop.wait()
            raise

    async def close(self) -> None:
        for loop in self._loops:
            await loop.stop()
        await self._guardian.close()
        self._folder.remove()
        self.dispatcher.abandon("The worker ended before the database had recorded it.")

    async def _wind_up(self) -> None:
        """Let the commands end by themselves, then end them, then see that the database knows."""
        self.tally.stopping(self.stop.reason)
        self.dispatcher.close()
        await self._first(self._crew.idle, self.stop.at_once.wait, seconds=self._terms.grace)
        self._crew.interrupt(Interruption.STOPPED, 0 if self.stop.at_once.is_set() else KILL_GRACE)
        await self._first(self._crew.idle, self.stop.at_once.wait)
        self._crew.interrupt(Interruption.STOPPED, 0)
        await self._first(self.dispatcher.loop.wait, self.stop.at_once.wait)
        await self._first(self.dispatcher.loop.wait, seconds=_LAST_WORDS)

    async def _first(self, *waits: Callable[[], Awaitable[object]], seconds: float | None = None) -> None:
        """Return when one of these is over, or after so many seconds; raises what any part of the run raises."""
        watched = (*waits, self._crew.fault, *(loop.wait for loop in self._loops if loop is not self.dispatcher.loop))
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
            self._wake()
        else:
            self.dispatcher.finish(ended)

    def _wake(self) -> None:
        self.dispatcher.loop.wake()

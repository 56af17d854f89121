"""One attempt of one job: its command from the first look at the payload to the finish that is to be reported."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sluicegate.model import Claim, FinishItem
from sluicegate.worker.events import Tally
from sluicegate.worker.guardian.client import CannotStart, Child, Exit, Guardian, GuardianLost
from sluicegate.worker.leases import HeldLease, ServerClock
from sluicegate.worker.output import Tail, wait_closed
from sluicegate.worker.payloads import PrivateFolder
from sluicegate.worker.surroundings import job_variables
from sluicegate.worker.terms import Terms
from sluicegate.worker.verdict import KILL_GRACE, Ending, Interruption, verdict
from sluicegate.worker.words import CommandLine, Unusable

# Seconds between SIGTERM and SIGKILL when somebody else may have the lease already.
LOST_GRACE = 1.0
# How long after a command's end its output is read on if something it left behind holds the pipe, before and after
# that something is killed.
_DRAIN = 1.0
_LAST_DRAIN = 0.2


@dataclass(frozen=True, slots=True)
class Tools:
    """What all attempts of a run share."""

    line: CommandLine
    terms: Terms
    guardian: Guardian
    folder: PrivateFolder
    tally: Tally
    clock: ServerClock
    is_stopping: Callable[[], bool]


class Execution:
    """An attempt as it runs. ``trouble`` says, after ``run``, that this machine could not start the command, and why."""

    def __init__(self, tools: Tools, claim: Claim, *, sent_at: float, length: float) -> None:
        self.claim = claim
        self.lease = HeldLease(
            claim,
            length,
            renewed_at=sent_at,
            ends_at=sent_at + length,
            holder=self,
        )
        self.trouble: str | None = None
        self.why_lost = "The lease ran out while the worker stood still."
        self.seconds: float | None = None
        self.exit_code: int | None = None
        self._tools = tools
        self._began = False
        self._child: Child | None = None
        self._interruption: Interruption | None = None

    def interrupt(self, why: Interruption, grace: float) -> None:
        """End the command if it runs; SIGKILL follows SIGTERM after ``grace`` seconds."""
        if self._interruption is None or (why.overrides and why.value > self._interruption.value):
            self._interruption = why
        if self._child is not None and not self._child.exited.done():
            self._child.kill(grace)

    def leave(self) -> str | None:
        """None: its command will be killed."""
        return None

    def broken_off(self) -> FinishItem | None:
        """What was started is killed, and what becomes of the job is its lease's to say."""
        if not self._began:
            reason = "The task that was to do it was cancelled before it began."
            return FinishItem.released(self.claim, reason=reason, started=False)
        self.interrupt(Interruption.STOPPED, 0)
        self.why_lost = "The task that watched over it was cancelled."
        return None

    async def run(self) -> FinishItem | None:
        """Do the job; None if its lease was lost, so that there is nothing to report."""
        self._began = True
        try:
            arguments = self._tools.line.arguments(self.claim.job.payload)
        except Unusable as error:
            # The next attempt would find the same payload, and be charged as well.
            return FinishItem.failed(self.claim, str(error), retry=False)
        if self._interruption is not None:
            return self._unstarted(self._interruption)
        try:
            with self._tools.folder.payload(self.claim) as path:
                return await self._run(arguments, path)
        except CannotStart as error:
            return self._not_started(error)
        except GuardianLost:
            return self._guardian_lost()
        except OSError as error:
            return self._in_trouble(str(error))

    async def _run(self, arguments: list[bytes], path: Path) -> FinishItem | None:
        child, stdout, stderr = await self._launch(arguments, path)
        started_at = time.monotonic()
        self._child = child
        self._tools.tally.started(self.claim)
        self.lease_renewed()
        if self._interruption is not None:
            child.kill(LOST_GRACE)
        limit = self._limit()
        try:
            exited = await child.exited
            self.seconds = time.monotonic() - started_at
            self.exit_code = exited.code
            # What happens to the job from here on does not change how its command ended.
            ending = self._ending(exited, stdout, stderr)
            await wait_closed((stdout, stderr), _DRAIN)
            await child.end()
            await wait_closed((stdout, stderr), _LAST_DRAIN)
        finally:
            if limit is not None:
                limit.cancel()
            stdout.close()
            stderr.close()
        return verdict(self.claim, ending)

    async def _launch(self, arguments: list[bytes], path: Path) -> tuple[Child, Tail, Tail]:
        with ExitStack() as ours, ExitStack() as if_it_fails:
            stdin = os.open(path, os.O_RDONLY)
            ours.callback(os.close, stdin)
            stdout, stdout_end = await Tail.open()
            ours.callback(os.close, stdout_end)
            if_it_fails.callback(stdout.close)
            stderr, stderr_end = await Tail.open()
            ours.callback(os.close, stderr_end)
            if_it_fails.callback(stderr.close)
            child = await self._tools.guardian.start(
                arguments,
                job_variables(self.claim, path),
                (stdin, stdout_end, stderr_end),
                (self.lease.farewell_at, self.lease.ends_at),
            )
            if_it_fails.pop_all()
        return child, stdout, stderr

    def _limit(self) -> asyncio.TimerHandle | None:
        timeout = self._tools.terms.timeout
        if timeout is None:
            return None
        return asyncio.get_running_loop().call_later(timeout, self.interrupt, Interruption.TIMED_OUT, KILL_GRACE)

    def _ending(self, exited: Exit, stdout: Tail, stderr: Tail) -> Ending:
        terms = self._tools.terms
        return Ending(
            exited,
            stdout,
            stderr,
            self._interruption,
            stopping=self._tools.is_stopping(),
            timeout=terms.timeout,
            later=self._tools.clock.now() + timedelta(seconds=terms.release_delay),
        )

    def lease_lost(self, why: str) -> None:
        self.why_lost = why
        self.interrupt(Interruption.LOST, LOST_GRACE)

    def job_cancelled(self) -> None:
        self.interrupt(Interruption.CANCELLED, KILL_GRACE)

    def lease_renewed(self) -> None:
        if self._child is not None and not self._child.exited.done():
            self._child.keep_until(self.lease.farewell_at, self.lease.ends_at)

    def _unstarted(self, why: Interruption) -> FinishItem | None:
        match why:
            case Interruption.LOST:
                return None
            case Interruption.CANCELLED:
                return FinishItem.failed(self.claim, "The job was cancelled before its command was started.")
            case _:
                return FinishItem.released(
                    self.claim, reason="The worker was stopped before it started the command.", started=False
                )

    def _not_started(self, error: CannotStart) -> FinishItem | None:
        if error.of_machine:
            return self._in_trouble(str(error))
        return FinishItem.failed(
            self.claim,
            f"The command could not be started: {error}: {self._tools.line.program}. Check that the program, and the "
            "interpreter a script names, exist on the worker's machine and may be executed.",
        )

    def _guardian_lost(self) -> FinishItem | None:
        if self._interruption is Interruption.LOST:
            return None
        if self._child is None:
            return self._in_trouble("the process that guards commands ended")
        # A failure, with its backoff: what killed it may have been this very command, which would do so for ever.
        return FinishItem.failed(
            self.claim, "The process that guards the worker's commands was killed, and the command with it."
        )

    def _in_trouble(self, problem: str) -> FinishItem:
        self.trouble = f"This machine cannot start the command: {problem}."
        return FinishItem.released(self.claim, reason=self.trouble, started=False)

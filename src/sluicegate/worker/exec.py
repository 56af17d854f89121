"""``exec``: a command for each job of a queue, as a real process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from sluicegate.client import Client
from sluicegate.errors import SluicegateError
from sluicegate.worker.commands import CommandSlots
from sluicegate.worker.events import WorkerEvent, WorkerReport
from sluicegate.worker.execution import Execution, Tools
from sluicegate.worker.guardian.client import Guardian
from sluicegate.worker.payloads import PrivateFolder
from sluicegate.worker.run import Run
from sluicegate.worker.stopping import StopRequest, stopped_by_signals
from sluicegate.worker.surroundings import allow_descriptors, base_environment
from sluicegate.worker.terms import Terms
from sluicegate.worker.words import CommandLine

__all__ = ["StopRequest", "WorkerEvent", "WorkerReport", "run_exec"]


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
    on_event: Callable[[WorkerEvent], object] | None = None,
    stop: StopRequest | None = None,
) -> WorkerReport:
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
    line.check_program()
    started_at = time.monotonic()
    run = Run(
        client, lease_seconds=terms.lease_seconds, grace=terms.grace, on_event=on_event, stop=stop or StopRequest()
    )
    folder = PrivateFolder()
    guardian = Guardian(folder.path, base_environment(os.environb, client.dsn))
    tools = Tools(line, terms, guardian, folder, run.tally, run.clock, run.stop.asked.is_set)
    run.staff(
        lambda claim, sent_at, length: Execution(tools, claim, sent_at=sent_at, length=length),
        lambda crew: CommandSlots(crew, terms, run.tally, run.hears),
        terms.queues,
    )
    async with AsyncExitStack() as stack:
        stack.callback(run.abandon)
        stack.callback(folder.remove)
        stack.push_async_callback(guardian.close)
        stack.push_async_callback(run.close)
        _open(guardian, folder, terms)
        stack.enter_context(stopped_by_signals(run.stop))
        await run.until_over()
    run.raise_faults()
    return run.tally.report(time.monotonic() - started_at)


def _open(guardian: Guardian, folder: PrivateFolder, terms: Terms) -> None:
    """Get ready to start commands. Raises SluicegateError if this machine does not allow it."""
    if not hasattr(os, "waitid"):
        raise SluicegateError(
            "exec cannot watch processes safely on this system.",
            next_step="Run it on Linux, or with Python 3.13 or newer.",
        )
    allow_descriptors(terms.concurrency)
    try:
        guardian.open()
        folder.make()
        folder.remove_left_behind()
    except OSError as error:
        raise SluicegateError(
            f"exec cannot prepare to run commands: {error}.",
            next_step="Free processes, memory or space, or let TMPDIR name a folder that can be written to.",
        ) from error

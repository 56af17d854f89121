"""``sluicegate exec``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sluicegate.cli.admission_views import deferred
from sluicegate.cli.arguments import Common, seconds, whole
from sluicegate.cli.connection import announce, settings, worker_name
from sluicegate.cli.output import Output, count, span
from sluicegate.errors import InvalidArgument

if TYPE_CHECKING:
    from sluicegate.worker.events import ExecEvent, ExecReport


async def run(
    queue: Annotated[str, Parameter(help="The queue to take jobs from.")],
    /,
    *command: Annotated[
        str, Parameter(name="COMMAND", help="What to run for each job, after --; {payload.a.b} stands for a value.")
    ],
    concurrency: Annotated[int, whole("concurrency", "How many at once: 1 to 1000, 1 unless given.")] = 1,
    lease: Annotated[
        int | None,
        whole(
            "lease_seconds", "Seconds a claim holds without a heartbeat: 1 to 86400. It is kept while the command runs."
        ),
    ] = None,
    timeout: Annotated[
        float | None, seconds("timeout", "End a command that runs longer; its attempt has failed.")
    ] = None,
    drain: Annotated[
        bool,
        Parameter(help="End when there is nothing left to take (what is deferred waits), instead of waiting for more."),
    ] = False,
    grace: Annotated[
        float, seconds("grace", "When stopped, how long running commands may go on; 30 unless given.")
    ] = 30.0,
    release_delay: Annotated[
        float, seconds("release_delay", "How long a job rests after its command ended with 75; 60 unless given.")
    ] = 60.0,
    worker: Annotated[str | None, Parameter(help="Who takes the jobs; USER@HOST unless given.")] = None,
    common: Common = Common(),
) -> None:
    """Run a command for each job of a queue, until it is stopped.

    The payload is on standard input, and in the file that
    SLUICEGATE_PAYLOAD_FILE names. There are SLUICEGATE_JOB_ID, _ATTEMPT,
    _QUEUE, _KIND and _LEASE_TOKEN, and never a DSN. No shell is involved.

    Exit status 0 completes the job, with the end of the output as its
    result; 75 gives it back for later; anything else fails the attempt,
    with the end of the error output. Ctrl-C or SIGTERM takes no more jobs
    and lets the running ones end; a second one ends them at once.
    A queue that is closed by its budget is told, and waited for.

    In an argument {payload.a.b} is a value of the payload, {payload.list.0}
    a member of a list and {payload} all of it. Nothing else in braces is
    replaced. The worker itself ends with 0, whatever became of the jobs; 1
    if it could not go on, 2 for wrong usage.

    sluicegate exec mail --concurrency 4 -- ./send.sh {payload.to}
    sluicegate exec reviews --drain --timeout 900 -- ./review {payload.pr}
    """
    from sluicegate import Client
    from sluicegate.worker.exec import run_exec

    if not command:
        raise InvalidArgument(
            "exec was given no command to run.",
            field="command",
            next_step="Write it after --: sluicegate exec QUEUE -- COMMAND …",
        )
    output = Output(json=common.json)
    announce(common, settings(common))
    name = worker_name(worker)
    client = Client(common.dsn, scope=common.scope, data_dir=common.data_dir, worker=name)
    async with client:
        report = await run_exec(
            client,
            queue,
            command,
            concurrency=concurrency,
            lease_seconds=lease,
            timeout=timeout,
            drain=drain,
            grace=grace,
            release_delay=release_delay,
            on_event=lambda event: output.event(_document(event, name), _line(event, queue)),
        )
    output.event({"event": "ended", "at": _now(), "worker": name, **report.to_dict()}, _last_line(report))


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _document(event: ExecEvent, worker: str) -> dict[str, Any]:
    job = None if event.claim is None else event.claim.job
    return {
        "event": event.kind,
        "at": _now(),
        "worker": worker,
        "job_id": None if job is None else job.id,
        "queue": job.queue if job is not None else None if event.deferral is None else event.deferral.queue,
        "attempt_id": None if event.claim is None else event.claim.attempt_id,
        "attempt": None if job is None else job.attempt,
        "max_attempts": None if job is None else job.max_attempts,
        "seconds": event.seconds,
        "exit_code": event.exit_code,
        "message": event.message,
        **({} if event.deferral is None else {"deferred": event.deferral.to_dict()}),
    }


def _line(event: ExecEvent, queue: str) -> str | None:
    message = (event.message or "").strip()
    if event.deferral is not None:
        return deferred(event.deferral)
    if event.kind == "waiting":
        # For whoever looks on: a log of lines is about jobs.
        return f"Waiting for jobs in {queue}. Ctrl-C ends it." if sys.stdout.isatty() else None
    if event.claim is None:
        words = {
            "database_away": "The database is out of reach; waiting for it",
            "database_back": "The database is back",
            "housekeeping": "The worker could not tidy up in the database",
            "stopping": "Stopping",
        }
        return words.get(event.kind, event.kind) + (f": {message}" if message else ".")
    job = event.claim.job
    took = "" if event.seconds is None else f" after {span(event.seconds)}"
    tries = f" (attempt {job.attempt} of {job.max_attempts})" if event.kind in ("started", "failed", "released") else ""
    line = f"job {job.id} {event.kind.replace('_', ' ')}{took}{tries}"
    return f"{line}\n    " + message.replace("\n", "\n    ") if message else line


def _last_line(report: ExecReport) -> str:
    parts = [
        f"{number} {what}"
        for what, number in (
            ("done", report.done),
            ("failed", report.failed),
            ("cancelled", report.cancelled),
            ("released", report.released),
            ("lost", report.lost),
        )
        if number
    ]
    dead = f", {count(report.dead_letters, 'dead letter')}" if report.dead_letters else ""
    return f"{count(report.claimed, 'attempt')} in {span(report.seconds)}: {', '.join(parts) or 'nothing to do'}{dead}"

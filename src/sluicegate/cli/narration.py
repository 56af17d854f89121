"""What a worker tells while it runs, for people and as lines of JSON."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluicegate.cli.admission_views import deferred
from sluicegate.cli.output import count, span

if TYPE_CHECKING:
    from sluicegate.worker.events import WorkerEvent, WorkerReport


def _now() -> str:
    return datetime.now(UTC).isoformat()


def document(event: WorkerEvent, worker: str) -> dict[str, Any]:
    """Something that happened, as the object of a line of JSON."""
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


class Narrator:
    """The same in words. Keeps count of what runs, so that it can say what a worker waits for when it is stopped."""

    def __init__(self, queues: str, grace: float) -> None:
        self._queues = queues
        self._grace = grace
        self._running: set[int] = set()
        self._stopping = False

    def line(self, event: WorkerEvent) -> str | None:
        """What to tell, None for what is nothing to tell."""
        if event.deferral is not None:
            return deferred(event.deferral)
        if event.kind == "waiting":
            # For whoever looks on: a log of lines is about jobs.
            return f"Waiting for jobs in {self._queues}. Ctrl-C ends it." if sys.stdout.isatty() else None
        if event.kind == "stopping":
            return f"Stopping: {(event.message or '').strip()}{self._left()}"
        if event.claim is not None:
            attempt = event.claim.attempt_id
            self._running.add(attempt) if event.kind == "started" else self._running.discard(attempt)
        return _line(event)

    def _left(self) -> str:
        """What is told of the jobs that run, the first time it is told that the worker stops."""
        again, self._stopping = self._stopping, True
        if again or not (running := len(self._running)):
            return "."
        jobs, are, them = ("One job", "is", "it") if running == 1 else (f"{running} jobs", "are", "them")
        if self._grace == 0:
            return f". {jobs} still running {are} ended now."
        return (
            f". {jobs} still running may take {span(self._grace)} more, and {are} ended and given back after that. "
            f"A second signal ends {them} at once."
        )


def _line(event: WorkerEvent) -> str:
    message = (event.message or "").strip()
    if event.claim is None:
        words = {
            "database_away": "The database is out of reach; waiting for it",
            "database_back": "The database is back",
            "housekeeping": "The worker could not tidy up in the database",
        }
        return words.get(event.kind, event.kind) + (f": {message}" if message else ".")
    job = event.claim.job
    took = "" if event.seconds is None else f" after {span(event.seconds)}"
    tries = f" (attempt {job.attempt} of {job.max_attempts})" if event.kind in ("started", "failed", "released") else ""
    told = f"job {job.id} {event.kind.replace('_', ' ')}{took}{tries}"
    return f"{told}\n    " + message.replace("\n", "\n    ") if message else told


def ended(report: WorkerReport, worker: str) -> dict[str, Any]:
    """The end of a run, as the object of the last line of JSON."""
    return {"event": "ended", "at": _now(), "worker": worker, **report.to_dict()}


def last_line(report: WorkerReport) -> str:
    """The end of a run in words: its numbers add up to that of the attempts."""
    dead = f" ({count(report.dead_letters, 'dead letter')} among them)" if report.dead_letters else ""
    parts = [
        f"{number} {what}"
        for what, number in (
            ("done", report.done),
            (f"failed{dead}", report.failed),
            ("cancelled", report.cancelled),
            ("released", report.released),
            ("lost", report.lost),
        )
        if number
    ]
    return f"{count(report.claimed, 'attempt')} in {span(report.seconds)}: {', '.join(parts) or 'nothing to do'}"

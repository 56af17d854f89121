"""Jobs as people see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate.cli.admission_views import standing_of
from sluicegate.cli.output import local, shown_json, span

if TYPE_CHECKING:
    from datetime import datetime

    from sluicegate.model import Attempt, JobDetail, JobRow

HEADS = ("ID", "QUEUE", "STATE", "PRIO", "ATTEMPT", "KIND", "WHEN", "ABOUT")


def state(job: JobRow) -> str:
    """The state in a word or two."""
    if job.dead_letter:
        return "dead letter"
    return "cancelling" if job.cancel_requested and job.state == "claimed" else job.state


def waits(job: JobRow) -> str:
    """The state in words, and why a job that waits may not start."""
    admission = job.admission
    if admission is None or admission.state == "admitted":
        return state(job)
    return f"{state(job)} ({admission.reason})"


def row(job: JobRow) -> tuple[str, ...]:
    """The cells of a job in a list."""
    return (
        str(job.id),
        job.queue,
        waits(job),
        str(job.priority),
        f"{job.attempt}/{job.max_attempts}",
        job.kind,
        local(_when(job)),
        job.title or (job.error or "").partition("\n")[0][:100],
    )


def _when(job: JobRow) -> datetime | None:
    """The time that matters in the job's state: a job that waits again keeps the time of its last claim."""
    match job.state:
        case "scheduled" | "pending":
            return job.run_at
        case "claimed":
            return job.claimed_at
        case _:
            return job.finished_at


def detail(found: JobDetail) -> list[str]:
    """One job whole, and its attempts."""
    job = found.job
    facts = [
        (
            "state",
            state(job)
            + (
                f", held by {job.worker or 'somebody'} until {local(job.lease_expires_at)}"
                if job.state == "claimed"
                else ""
            ),
        ),
        ("admission", "" if job.admission is None else standing_of(job.admission)),
        ("kind", job.kind),
        ("tags", " ".join(job.tags)),
        ("priority", f"{job.priority}, class {job.class_}"),
        ("attempt", f"{job.attempt} of {job.max_attempts} ({job.attempts_total} in all)"),
        ("dedup key", job.dedup_key or ""),
        ("parent", "" if job.parent_id is None else f"job {job.parent_id}"),
        ("created", local(job.created_at)),
        ("runs at", local(job.run_at) if job.state in ("scheduled", "pending") else ""),
        ("claimed", local(job.claimed_at)),
        ("finished", local(job.finished_at)),
        ("payload", shown_json(job.payload)),
        ("result", "" if job.result is None else shown_json(job.result)),
        ("error", job.error or ""),
    ]
    lines = [f"job {job.id} of {job.queue}" + (f": {job.title}" if job.title else "")]
    lines += [f"  {name:<10} {_indented(value)}" for name, value in facts if value]
    for attempt in found.attempts:
        lines += ["", *attempt_lines(attempt)]
    return lines


def attempt_lines(attempt: Attempt) -> list[str]:
    """An attempt in a job's history."""
    who = f" by {attempt.worker}" if attempt.worker else ""
    if attempt.ended_at is None:
        return [f"  attempt {attempt.seq}  opened {local(attempt.opened_at)}{who}, still open"]
    took = span((attempt.ended_at - attempt.opened_at).total_seconds())
    lines = [
        f"  attempt {attempt.seq}  opened {local(attempt.opened_at)}{who}, {attempt.outcome} after {took}, then {attempt.disposition}"
    ]
    lines += [f"    {_indented(text, 4)}" for text in (attempt.summary, attempt.error) if text]
    return lines


def _indented(text: str, by: int = 13) -> str:
    return text.rstrip("\n").replace("\n", "\n" + " " * by)

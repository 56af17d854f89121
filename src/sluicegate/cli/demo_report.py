"""How the demonstration shows what it does, and what came of it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sluicegate.cli.output import Output, program, span

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from sluicegate import Client, JobRow
    from sluicegate.cli.demo_budget import HeldBack
    from sluicegate.worker.events import WorkerEvent

_ENDS = ("done", "dead_letter", "cancelled")


class Progress:
    """A bar on a terminal, a line for every tenth elsewhere, nothing in JSON. ``stopped`` after Ctrl-C."""

    def __init__(self, total: int, output: Output) -> None:
        self.stopped = False
        self._total = total
        self._output = output
        self._ended = 0
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if not self._output.json and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def event(self, event: WorkerEvent) -> None:
        """Something happened."""
        if event.kind == "stopping":
            self.stopped = True
        title = "" if event.claim is None else event.claim.job.title
        if event.kind in ("failed", "dead_letter"):
            again = "once more a moment later" if event.kind == "failed" else "a dead letter now"
            self.say(f"{title} does not compile: {again}")
        if event.kind in _ENDS:
            before, self._ended = self._ended, self._ended + 1
            if self._bar is None and before * 10 // self._total < self._ended * 10 // self._total:
                self._output.note(f"  {self._ended:>4} of {self._total}")
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._ended, description=title)

    def say(self, text: str) -> None:
        """A line for people, beside the bar."""
        if self._bar is not None:
            self._bar.console.print(f"  {text}", markup=False, highlight=False)
        else:
            self._output.note(f"  {text}")


@dataclass(frozen=True)
class DeadJob:
    """A job that failed for good."""

    job_id: int
    title: str
    attempts: int
    error: str


@dataclass(frozen=True)
class Summary:
    """What the database says about the jobs of a run, which took so many ``seconds``; ``budget``: what one held back."""

    queue: str
    jobs: int
    done: int
    failed: int
    attempts: int
    seconds: float
    concurrency: int
    dead_letters: tuple[DeadJob, ...]
    budget: HeldBack | None

    @classmethod
    async def of(cls, client: Client, queue: str, concurrency: int, seconds: float, budget: HeldBack | None) -> Self:
        """Count the jobs of ``queue``, page by page."""
        rows: list[JobRow] = []
        before: int | None = None
        while True:
            page = await client.list_jobs(queue=queue, limit=200, before_id=before)
            rows.extend(page.jobs)
            before = page.next_before_id
            if before is None:
                break
        dead = tuple(DeadJob(job.id, job.title, job.attempts_total, job.error or "") for job in rows if job.dead_letter)
        return cls(
            queue=queue,
            jobs=len(rows),
            done=sum(job.state == "done" for job in rows),
            failed=len(dead),
            attempts=sum(job.attempts_total for job in rows),
            seconds=round(seconds, 3),
            concurrency=concurrency,
            dead_letters=dead,
            budget=budget,
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"budget": None if self.budget is None else self.budget.to_dict()}


def lines(summary: Summary, options: str) -> list[str]:
    """The table at the end, the dead letters, and what to try next, with the options that find this database."""
    rate = f"{summary.jobs / max(summary.seconds, 0.001):.0f} jobs a second, {summary.concurrency} at a time"
    table = (
        ("done", f"{summary.done:,}", f"of {summary.jobs:,} files compile"),
        ("failed", f"{summary.failed:,}", "dead letters: their last attempt failed too"),
        ("attempts", f"{summary.attempts:,}", "processes were started, and each is on record"),
        ("duration", span(summary.seconds), rate),
    )
    told = ["", *(f"  {name:<9} {value:>7}  {note}" for name, value, note in table)]
    for letter in summary.dead_letters:
        told += ["", f"Job {letter.job_id}, {letter.title}, failed {letter.attempts} times. At last it said:"]
        told += [f"    {line}" for line in letter.error.rstrip().splitlines()]
    try_next = [
        ("what failed", f"jobs --queue {summary.queue} --state failed"),
        *(("one job, and its attempts", f"job {letter.job_id}") for letter in summary.dead_letters[:1]),
        *((("its budget, and its use", f"queue budget show {summary.queue}"),) if summary.budget else ()),
        ("a database that stays up", "up"),
    ]
    command = f"{program()} {options}".rstrip()
    return [*told, "", "Try next:", *(f"  {why:<27}{command} {verb}" for why, verb in try_next)]

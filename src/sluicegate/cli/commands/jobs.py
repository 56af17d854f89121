"""``sluicegate jobs``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import Parameter

from sluicegate.cli.arguments import Common, seconds, whole
from sluicegate.cli.connection import connected
from sluicegate.cli.job_views import HEADS, row, state
from sluicegate.cli.output import Output, columns, visible
from sluicegate.errors import InvalidArgument

if TYPE_CHECKING:
    from rich.table import Table

    from sluicegate import JobRow, SyncClient
    from sluicegate.model import JobPage, JobState


def run(
    *,
    queue: Annotated[str | None, Parameter(help="Of this queue only; of all unless given.")] = None,
    state: Annotated[
        str | None,
        Parameter(
            help="In this state only: scheduled, pending, claimed, done, failed (the dead letters) or cancelled; in any unless given."
        ),
    ] = None,
    kind: Annotated[str | None, Parameter(help="Of this kind only; of any unless given.")] = None,
    limit: Annotated[int, whole("limit", "How many, newest first: 1 to 200, 50 unless given.")] = 50,
    before: Annotated[
        int | None, whole("before_id", "Older than this id: the next_before_id of the page before.")
    ] = None,
    watch: Annotated[bool, Parameter(help="Go on showing them as they change, until Ctrl-C.")] = False,
    interval: Annotated[
        float, seconds("interval", "With --watch: seconds between looks, 0.1 to 3600; 1 unless given.")
    ] = 1.0,
    common: Common = Common(),
) -> None:
    """List jobs, newest first, or watch them.

    With --watch a terminal shows a table that stays up to date. Elsewhere,
    and with --json, a line is written for every job that is new or has
    changed, the first time for all of them.

    sluicegate jobs --queue reviews --state failed
    sluicegate jobs --watch --json
    """
    wanted = _Wanted(queue, state, kind, limit, before)
    output = Output(json=common.json)
    if not 0.1 <= interval <= 3600:
        raise InvalidArgument(
            f"interval is {interval:g}, which is out of range.",
            field="interval",
            next_step="Write 0.1 to 3600 seconds.",
        )
    with connected(common) as client:
        if not watch:
            page = wanted.page(client)
            output.answer(page.to_dict(), *([] if output.json else _lines(page, goes_on=wanted.goes_on(client, page))))
        elif output.json or not sys.stdout.isatty():
            for job in _changes(wanted, client, interval):
                output.event(job.to_dict(), "  ".join(row(job)))
        else:
            _live(wanted, client, interval)


@dataclass(frozen=True)
class _Wanted:
    queue: str | None
    state: str | None
    kind: str | None
    limit: int
    before: int | None

    def page(self, client: SyncClient) -> JobPage:
        return client.list_jobs(
            queue=self.queue,
            state=cast("JobState | None", self.state),  # the API refuses other texts, naming the states
            kind=self.kind,
            limit=self.limit,
            before_id=self.before,
        )

    def goes_on(self, client: SyncClient, page: JobPage) -> bool:
        """Whether there are, or may be, older ones than a page holds."""
        if page.next_before_id is None:
            return False
        after = replace(self, limit=1, before=page.next_before_id).page(client)
        return bool(after.jobs) or after.next_before_id is not None


def _lines(page: JobPage, *, goes_on: bool) -> list[str]:
    more = [] if not goes_on else [f"Older ones: --before {page.next_before_id}"]
    if not page.jobs:
        return ["There are no such jobs." if not more else "There are none among the newest jobs.", *more]
    return [*columns(HEADS, map(row, page.jobs)), *more]


def _changes(wanted: _Wanted, client: SyncClient, interval: float) -> Iterator[JobRow]:
    seen: dict[int, JobRow] = {}
    while True:
        now = {job.id: job for job in wanted.page(client).jobs}
        steady = {job_id: _steady(job) for job_id, job in now.items()}
        yield from (now[job_id] for job_id in sorted(now) if seen.get(job_id) != steady[job_id])
        seen = steady
        time.sleep(interval)


def _steady(job: JobRow) -> JobRow:
    """The job without the time that is only a hint: it moves with every lease of its queue."""
    if job.admission is None or job.admission.exact:
        return job
    return replace(job, admission=replace(job.admission, next_eligible_at=None))


def _live(wanted: _Wanted, client: SyncClient, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(), screen=True, auto_refresh=False) as screen:
        while True:
            page = wanted.page(client)
            screen.update(_table(page.jobs, screen.console.height - 4), refresh=True)
            time.sleep(interval)


def _table(jobs: tuple[JobRow, ...], most: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, expand=True, pad_edge=False)
    for head in HEADS:
        table.add_column(head, no_wrap=True, ratio=1 if head == HEADS[-1] else None)
    colours = {"done": "green", "dead letter": "red", "claimed": "cyan", "cancelled": "dim"}
    for job in jobs[: max(most, 1)]:
        style = colours.get(state(job), "")
        table.add_row(*(Text(visible(cell).replace("\n", " "), style=style) for cell in row(job)))
    return table

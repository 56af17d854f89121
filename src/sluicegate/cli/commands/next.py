"""``sluicegate next``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sluicegate.cli.arguments import Common, whole
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output, columns, local

if TYPE_CHECKING:
    from sluicegate.model import NextJob

MOST = 200


def run(
    *,
    queue: Annotated[str | None, Parameter(help="Of this queue only; of all unless given.")] = None,
    limit: Annotated[int, whole("limit", "How many: 1 to 200, 20 unless given.")] = 20,
    common: Common = Common(),
) -> None:
    """List what will run next, and when.

    sluicegate next --queue reviews
    """
    with connected(common) as client:
        # One more than is shown tells whether there are more.
        asked = limit + 1 if 1 <= limit < MOST else limit
        found = client.next_jobs(queue, limit=asked)
    more = len(found.jobs) == asked
    found = replace(found, jobs=found.jobs[:limit])
    rows = [_row(job) for job in found.jobs]
    lines = columns(("ID", "QUEUE", "PRIO", "STATUS", "EXPECTED", "KIND", "ABOUT"), rows)
    if more:
        lines.append(f"There are more: --limit shows up to {MOST}." if limit < MOST else "There may be more.")
    Output(json=common.json).answer({**found.to_dict(), "more": more}, *(lines if rows else ["Nothing waits."]))


def _row(job: NextJob) -> tuple[str, ...]:
    expected = "not known" if job.expected_at is None else local(job.expected_at) + ("" if job.exact else " or so")
    return (
        str(job.id),
        job.queue,
        str(job.priority),
        job.status if job.reason is None else f"{job.status} ({job.reason})",
        expected,
        job.kind,
        job.title,
    )

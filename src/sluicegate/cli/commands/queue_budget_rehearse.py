"""``sluicegate queue budget rehearse``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from sluicegate.cli.arguments import Common, whole
from sluicegate.cli.budgets import Limits, QueueName, Whose
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output, columns, count, span

if TYPE_CHECKING:
    from sluicegate.model import Rehearsal


def run(
    queue: QueueName,
    /,
    *,
    limits: Limits = Limits(),
    days: Annotated[int, whole("days", "From the claims of so many days: 1 to 45, 7 unless given.")] = 7,
    whose: Whose = Whose(),
    common: Common = Common(),
) -> None:
    """Tell what a budget would have done with the claims of the last days.

    For each UTC day: how many claims would have been taken as they were,
    how many later, how many of those still waited now (or would for ever),
    and how long the others would have waited. Nothing is changed. The limits that
    are not named are those the queue has now.

    sluicegate queue budget rehearse reviews --per-day 100 --days 30
    """
    with connected(whose.within(common)) as client:
        (now,) = client.admission_status(queue).queues
        patch = limits.patch(now)
        kept = {"max_in_flight": now.max_in_flight, "in_flight_mode": now.in_flight_mode, "limits": now.limits}
        found = client.rehearse(queue, {**kept, **patch}, days=days)
    Output(json=common.json).answer(found.to_dict(), *_lines(found))


def _lines(found: Rehearsal) -> list[str]:
    if not found.per_day:
        return [f"There were no claims of {found.queue} in the last {count(found.days, 'day')}."]
    rows = [
        (
            day.day,
            f"{day.claims:,}",
            f"{day.admitted:,}",
            f"{day.deferred:,}",
            f"{day.still_deferred:,}",
            span(day.longest_wait_seconds) if day.longest_wait_seconds else "",
            span(day.total_wait_seconds / day.deferred) if day.total_wait_seconds else "",
        )
        for day in found.per_day
    ]
    lines = columns(("DAY", "CLAIMS", "NOT DEFERRED", "DEFERRED", "STILL WAITING", "LONGEST WAIT", "MEAN WAIT"), rows)
    if found.never:
        lines.append(f"{count(found.never, 'claim')} would not have been admitted at all.")
    if found.cut:
        lines.append(f"Only the newest {found.claims:,} claims were played.")
    return lines

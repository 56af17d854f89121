"""``sluicegate explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate.cli.admission_views import gate, opens, why
from sluicegate.cli.arguments import Common, JobId
from sluicegate.cli.connection import connected
from sluicegate.cli.job_views import state
from sluicegate.cli.output import Output, local

if TYPE_CHECKING:
    from sluicegate.model import Explanation, Verdict


def run(job_id: JobId, /, *, common: Common = Common()) -> None:
    """Say why a job does not run, when it will, and what would admit it now.

    sluicegate explain 17
    """
    with connected(common) as client:
        found = client.explain(job_id)
    Output(json=common.json).answer(found.to_dict(), *_lines(found))


def _lines(found: Explanation) -> list[str]:
    job, verdict = found.job, found.verdict
    lines = [f"job {job.id} of {job.queue} is {state(job)}: {_short(found).removesuffix('.')}."]
    if found.waits_for in ("admission", "run_at"):
        lines += [
            f"  closed    {gate(one)}, {opens(one.until, one.gate if one.limit else None, exact=one.exact)}"
            + (f" ({found.paused_reason})" if one.gate == "pause" and found.paused_reason else "")
            for one in verdict.all
        ]
    if found.waits_for == "admission":
        lines += [
            f"  held by   job {one.job_id}{f' ({one.kind})' if one.kind else ''}, {one.worker or 'somebody'}, "
            f"since {local(one.claimed_at)}, until {local(one.lease_expires_at)} unless renewed"
            for one in found.holders
        ]
        if found.position is not None:
            lines.append(f"  before it {found.position:,}{'' if found.position_exact else ' or more'} of its class")
    if found.expected_at is not None:
        hint = "" if found.expected_exact else ", or so"
        lines.append(f"  expected  {local(found.expected_at)}{hint}, if nothing changes")
    lines.append(f"  charged   {found.charged:,}, of which for retries: {found.charged_for_retries:,}")
    if found.command is not None:
        lines.append(f"  now       {found.command}")
    return lines


def _short(found: Explanation) -> str:
    verdict = found.verdict
    match found.waits_for:
        case "admission" if verdict.state == "deferred":
            return f"deferred, {_closed(verdict)}"
        case "admission":
            return "it may start; the next claim of its queue takes the first in line"
        case "run_at":
            closed = f"; its queue is closed now, {_closed(verdict)}" if verdict.state == "deferred" else ""
            return f"it waits for its time, {local(found.job.run_at)}{closed}"
        case "running":
            return f"{found.job.worker or 'somebody'} works on it until {local(found.job.lease_expires_at)}"
        case "end":
            left = "it is to be cancelled" if found.job.cancel_requested else "no attempt is left"
            becomes = "cancelled" if found.job.cancel_requested else "a dead letter"
            ran_out = local(found.job.lease_expires_at)
            return f"its lease ran out {ran_out} and {left}; the next claim while its queue is open, or reap, makes it {becomes}"
        case _:
            return "it waits for nothing"


def _closed(verdict: Verdict) -> str:
    """Why a queue is closed, and until when."""
    until = opens(verdict.next_eligible_at, verdict.reason, exact=verdict.exact)
    return why(verdict.reason, verdict.all) + (f": {verdict.fault}" if verdict.fault else f", {until}")

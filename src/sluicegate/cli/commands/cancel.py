"""``sluicegate cancel``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sluicegate.cli.arguments import Common, JobId
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output


def run(
    job_id: JobId,
    /,
    *,
    reason: Annotated[str | None, Parameter(help="Why; it is kept with the job.")] = None,
    common: Common = Common(),
) -> None:
    """Cancel a job, at once or when its holder hears of it.

    A job that nobody holds is cancelled now. Who holds it learns of it at the
    next heartbeat, and ends it then.

    sluicegate cancel 17 --reason "merged meanwhile"
    """
    with connected(common) as client:
        cancelled = client.cancel(job_id, reason=reason)
    line = f"job {cancelled.job_id} is cancelled"
    if cancelled.state != "cancelled":
        line = f"job {cancelled.job_id} is {cancelled.state}: its holder is told at the next heartbeat and ends it then"
    Output(json=common.json).answer(cancelled.to_dict(), line)

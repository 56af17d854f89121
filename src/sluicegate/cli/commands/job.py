"""``sluicegate job``."""

from __future__ import annotations

from typing import Annotated

from sluicegate.cli.arguments import Common, JobId, whole
from sluicegate.cli.connection import connected
from sluicegate.cli.job_views import detail
from sluicegate.cli.output import Output


def run(
    job_id: JobId,
    /,
    *,
    attempts: Annotated[
        int, whole("attempts_limit", "How many attempts to show, newest first: 0 to 50, 20 unless given.")
    ] = 20,
    common: Common = Common(),
) -> None:
    """Show one job whole, with its attempts: when, by whom, how it ended.

    sluicegate job 17
    """
    with connected(common) as client:
        found = client.get_job(job_id, attempts_limit=attempts)
    Output(json=common.json).answer(found.to_dict(), *detail(found))

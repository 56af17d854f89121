"""``sluicegate retry``."""

from __future__ import annotations

from sluicegate.cli.arguments import Common, JobId
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output


def run(job_id: JobId, /, *, common: Common = Common()) -> None:
    """Put a failed, cancelled or waiting job back to pending now.

    Its attempts count from 0 again, and its history stays. A conflict names
    the newer live job that has its dedup key.

    sluicegate retry 17
    """
    with connected(common) as client:
        retried = client.retry(job_id)
    Output(json=common.json).answer(
        retried.to_dict(), f"job {retried.job_id} is {retried.state}, its attempts counted from 0"
    )

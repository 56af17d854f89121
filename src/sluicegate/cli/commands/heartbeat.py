"""``sluicegate heartbeat``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sluicegate.cli.arguments import Common, JobId, whole
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output, local, span
from sluicegate.cli.tokens import TokenFile, held


def run(
    job_id: JobId,
    /,
    *,
    token_file: TokenFile = None,
    lease: Annotated[
        int | None, whole("lease_seconds", "Seconds from now, 1 to 86400; as long as it was claimed for unless given.")
    ] = None,
    shorten: Annotated[
        bool, Parameter(help="Let --lease make the lease end sooner, which it otherwise never does.")
    ] = False,
    note: Annotated[
        str | None, Parameter(help="A few words on how it goes, up to 512 bytes, kept with the job.")
    ] = None,
    common: Common = Common(),
) -> None:
    """Say that you still work on a job, and hold it longer.

    The answer tells whether its cancellation was asked for. A conflict means
    that the lease was lost: stop working on the job.

    SLUICEGATE_LEASE_TOKEN=… sluicegate heartbeat 17 --lease 600
    """
    lease_held = held(job_id, token_file)
    with connected(common) as client:
        beat = client.heartbeat(lease_held, lease_seconds=lease, shorten=shorten, note=note)
    lines = []
    if beat.lease_expires_at is not None:
        left = (beat.lease_expires_at - beat.server_time).total_seconds()
        lines.append(f"job {beat.job_id} is yours until {local(beat.lease_expires_at)} ({span(left)})")
    if beat.cancelled:
        lines.append("Its cancellation was asked for: stop, and release or fail it.")
    Output(json=common.json).answer(beat.to_dict(), *lines)

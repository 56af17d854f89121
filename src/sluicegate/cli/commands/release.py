"""``sluicegate release``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from sluicegate.cli.arguments import Common, JobId, moment
from sluicegate.cli.connection import connected
from sluicegate.cli.finishes import finished
from sluicegate.cli.tokens import TokenFile, held


def run(
    job_id: JobId,
    /,
    *,
    token_file: TokenFile = None,
    reason: Annotated[str | None, Parameter(help="Why; it is kept with the attempt.")] = None,
    not_before: Annotated[
        datetime | None, moment("not_before", "Do not run it before, e.g. 2030-01-31T09:30:00+01:00.")
    ] = None,
    not_started: Annotated[bool, Parameter(help="It never ran: give the attempt back as well.")] = False,
    common: Common = Common(),
) -> None:
    """Give a job back unfinished, for others to take.

    The attempt stays spent unless --not-started is given. That never makes
    a dead letter: a job released at its last attempt waits for another.

    sluicegate release 17 --token-file claim.json --not-started
    """
    lease = held(job_id, token_file)
    with connected(common) as client:
        answer = client.release(lease, reason=reason, not_before=not_before, started=not not_started)
        finished(answer, common)

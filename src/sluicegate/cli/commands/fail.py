"""``sluicegate fail``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sluicegate.cli.arguments import Common, JobId, dashed, seconds
from sluicegate.cli.connection import connected
from sluicegate.cli.finishes import finished, only_one_from_stdin
from sluicegate.cli.reading import text_argument
from sluicegate.cli.tokens import TokenFile, held


def run(
    job_id: JobId,
    /,
    *,
    token_file: TokenFile = None,
    error: Annotated[
        str,
        dashed("error", "What went wrong, or - for standard input; clipped to 16 KiB, its ends kept.", metavar="TEXT"),
    ] = "",
    retry_in: Annotated[
        float | None, seconds("retry_in_seconds", "Try again after so many seconds, instead of the job's backoff.")
    ] = None,
    no_retry: Annotated[bool, Parameter(help="Make it a dead letter now, whatever attempts are left.")] = False,
    summary: Annotated[str | None, Parameter(help="The same in a sentence, up to 2 KiB.")] = None,
    common: Common = Common(),
) -> None:
    """End an attempt as failed.

    The job runs again after its backoff; at its last attempt, or with
    --no-retry, it is a dead letter.

    sluicegate fail 17 --token-file claim.json --error "the branch is gone"
    """
    only_one_from_stdin(token_file, error)
    lease = held(job_id, token_file)
    what = text_argument(error, "error")
    with connected(common) as client:
        finished(client.fail(lease, what, retry_in_seconds=retry_in, retry=not no_retry, summary=summary), common)

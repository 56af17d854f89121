"""``sluicegate complete``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sluicegate.cli.arguments import Common, JobId, dashed
from sluicegate.cli.connection import connected
from sluicegate.cli.finishes import finished, only_one_from_stdin
from sluicegate.cli.reading import json_argument
from sluicegate.cli.tokens import TokenFile, held


def run(
    job_id: JobId,
    /,
    *,
    token_file: TokenFile = None,
    result: Annotated[
        str | None, dashed("result", "What came of it, as JSON up to 1 MiB, or - for standard input.", metavar="JSON")
    ] = None,
    summary: Annotated[str | None, Parameter(help="The same in a sentence, up to 2 KiB.")] = None,
    common: Common = Common(),
) -> None:
    """Finish a job as done.

    Doing it twice with the same token is fine. A conflict means that the
    lease was lost, or that the job ended otherwise.

    sluicegate complete 17 --token-file claim.json --result '{"comments": 3}'
    """
    only_one_from_stdin(token_file, result)
    lease = held(job_id, token_file)
    value = None if result is None else json_argument(result, "result")
    with connected(common) as client:
        finished(client.complete(lease, value, summary=summary), common)

"""What the verbs that end an attempt have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate.cli.arguments import Common
from sluicegate.cli.output import Output, local
from sluicegate.errors import InvalidArgument

if TYPE_CHECKING:
    from sluicegate import Finish


def finished(finish: Finish, common: Common) -> None:
    """Tell the answer to a finish."""
    if finish.dead_letter:
        line = f"job {finish.job_id} is a dead letter after attempt {finish.attempt} of {finish.max_attempts}"
    elif finish.run_at is not None and finish.state in ("scheduled", "pending"):
        line = f"job {finish.job_id} is {finish.state} again, for {local(finish.run_at)}"
    else:
        line = f"job {finish.job_id} is {finish.state}"
    again = " (it was already)" if finish.replayed else ""
    Output(json=common.json).answer(finish.to_dict(), line + again)


def only_one_from_stdin(token_file: str | None, other: str | None) -> None:
    """Standard input can be read once. Raises InvalidArgument if two arguments want it."""
    if token_file == "-" and other == "-":
        raise InvalidArgument(
            "Two arguments want standard input.",
            field="token_file",
            next_step="Give the lease token in SLUICEGATE_LEASE_TOKEN or in a file.",
        )

"""Where a lease token comes from: a file, a pipe or the environment, never an argument that others could read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from sluicegate.cli.arguments import dashed
from sluicegate.cli.reading import file_text, parsed_json
from sluicegate.errors import InvalidArgument

if TYPE_CHECKING:
    from sluicegate import Lease

VARIABLE = "SLUICEGATE_LEASE_TOKEN"
FIELD = "lease_token"

TokenFile = Annotated[
    str | None,
    dashed(
        "token_file",
        f"A file, or - for standard input, with the lease token or with what `claim --json` printed; else {VARIABLE}.",
        metavar="PATH",
    ),
]


def held(job_id: int, token_file: str | None) -> Lease:
    """The lease on a job. Raises InvalidArgument if there is no token for it."""
    from sluicegate import Lease

    if token_file is not None:
        return Lease(job_id, _in_text(file_text(token_file, FIELD), job_id))
    token = os.environ.get(VARIABLE, "").strip()
    if not token:
        raise InvalidArgument(
            f"Only the holder of job {job_id} may do this, and no lease token was given.",
            field=FIELD,
            next_step=f"Put the lease_token of its claim in {VARIABLE}, or in a file or pipe: --token-file PATH (or -).",
        )
    return Lease(job_id, token)


def _in_text(text: str, job_id: int) -> str:
    text = text.strip()
    if not text.startswith("{"):
        if text and len(text.split()) == 1:
            return text
        raise _unusable("holds no lease token")
    document = parsed_json(text, FIELD)
    claims = [document, *_list(document.get("claims"))]
    for claim in claims:
        job, token = claim.get("job"), claim.get(FIELD)
        if isinstance(job, dict) and job.get("id") == job_id and isinstance(token, str) and token:
            return token
    raise _unusable(f"holds no claim of job {job_id}")


def _list(value: Any) -> list[dict[str, Any]]:
    return [member for member in value if isinstance(member, dict)] if isinstance(value, list) else []


def _unusable(what: str) -> InvalidArgument:
    return InvalidArgument(
        f"The token file {what}.",
        field=FIELD,
        next_step="It is the lease_token alone, or the JSON that the claim printed.",
    )

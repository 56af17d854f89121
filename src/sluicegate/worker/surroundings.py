"""What a command finds when it starts: its environment, and enough open files."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path

from sluicegate.errors import InvalidArgument
from sluicegate.model import Claim

# Everything libpq reads begins so; a DSN that lies scattered over them is still one.
_LIBPQ = b"PG"
# Two streams and a moment's payload and socket; and what a process has open anyway.
_DESCRIPTORS_A_COMMAND = 4
_DESCRIPTORS = 100
_KEPT = frozenset({b"SLUICEGATE_DATA_DIR", b"SLUICEGATE_SCOPE", b"SLUICEGATE_URL"})


def base_environment(environment: Mapping[bytes, bytes], dsn: str | None = None) -> dict[bytes, bytes]:
    """``environment`` without any way to the queue's database, and without secrets of the worker's own.

    Left out are ``PG…``, everything of ours but a few harmless names, and any variable whose value is ``dsn``.
    """
    secret = None if dsn is None else os.fsencode(dsn)
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_LIBPQ) and (not name.startswith(b"SLUICEGATE_") or name in _KEPT) and value != secret
    }


def job_variables(claim: Claim, payload_file: Path) -> dict[bytes, bytes]:
    """The variables that tell a command which job it does."""
    job = claim.job
    return {
        b"SLUICEGATE_JOB_ID": b"%d" % job.id,
        b"SLUICEGATE_ATTEMPT": b"%d" % job.attempt,
        b"SLUICEGATE_QUEUE": job.queue.encode(),
        b"SLUICEGATE_KIND": job.kind.encode(),
        b"SLUICEGATE_LEASE_TOKEN": claim.lease_token.encode(),
        b"SLUICEGATE_PAYLOAD_FILE": os.fsencode(payload_file),
    }


def allow_descriptors(commands: int) -> None:
    """Let this process open what so many commands at a time need, up to the system's hard limit.

    Raises InvalidArgument naming ``concurrency`` if that is not enough.
    """
    wanted = _DESCRIPTORS + _DESCRIPTORS_A_COMMAND * commands
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise InvalidArgument(
            f"{commands} commands at a time need {wanted} open files, and this system allows {hard}.",
            field="concurrency",
            next_step="Run fewer at a time, or raise the limit (ulimit -Hn).",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

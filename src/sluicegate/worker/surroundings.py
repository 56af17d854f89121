"""What a command finds when it starts: its environment, and the file with its payload."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sluicegate.errors import InvalidArgument, SluicegateError
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


def private_folder() -> Path:
    """A name for a folder that does not exist yet. ``make_private`` makes it. Raises SluicegateError."""
    try:
        place = tempfile.gettempdir()
    except OSError as error:
        raise SluicegateError(
            f"There is no folder for temporary files: {error}.", next_step="Let TMPDIR name one that can be written to."
        ) from error
    return Path(place, f"sluicegate-exec-{secrets.token_hex(8)}")


def make_private(folder: Path) -> None:
    """Make the folder, for this user only. It may be there already, but must be nobody else's. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise PermissionError(f"{folder} is not a folder of this user's alone")


@contextmanager
def payload_file(folder: Path, claim: Claim) -> Iterator[Path]:
    """A file with the payload as JSON, for this user only, which is removed at the end. Raises OSError."""
    make_private(folder)  # again, if a cleaner of temporary files took it
    path = folder / f"{claim.job.id}-{claim.attempt_seq}.json"
    text = json.dumps(claim.job.payload, ensure_ascii=False).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
        yield path
    finally:
        with contextlib.suppress(OSError):
            path.unlink()

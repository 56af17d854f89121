"""Payload files: in a folder of the worker's own, for this user only, and gone when they are not needed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluicegate.errors import SluicegateError
from sluicegate.model import Claim

_PREFIX = "sluicegate-exec-"
# A folder that is being made is not yet locked; one this old, in seconds, is.
_OLD = 60.0


class PrivateFolder:
    """The folder of one worker. While it is used it is locked, so that one left behind can be told from it.

    It does not exist before ``make``. Raises SluicegateError if this machine has no place for temporary files.
    """

    def __init__(self) -> None:
        try:
            place = tempfile.gettempdir()
        except OSError as error:
            raise SluicegateError(
                f"There is no folder for temporary files: {error}.",
                next_step="Let TMPDIR name one that can be written to.",
            ) from error
        self.path = Path(place, f"{_PREFIX}{secrets.token_hex(8)}")
        self._lock: int | None = None

    def make(self) -> None:
        """Make the folder, again if a cleaner of temporary files took it. Raises OSError, also if it is not ours."""
        try:
            self.path.mkdir(0o700)
        except FileExistsError:
            if not _is_ours(self.path):
                raise PermissionError(f"{self.path} is not a folder of this user's alone") from None
        else:
            self._unlock()
            self._lock = _locked(self.path)

    @contextmanager
    def payload(self, claim: Claim) -> Iterator[Path]:
        """A file with the payload as JSON, which is removed at the end. Raises OSError."""
        self.make()
        path = self.path / f"{claim.job.id}-{claim.attempt_seq}.json"
        text = json.dumps(claim.job.payload, ensure_ascii=False).encode()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
            yield path
        finally:
            with contextlib.suppress(OSError):
                path.unlink()

    def remove(self) -> None:
        """Remove the folder and all in it. Twice is fine."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def remove_left_behind(self) -> None:
        """Remove what workers left that were killed together with their guardians."""
        for path in self.path.parent.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if _is_ours(path) and time.time() - path.stat().st_mtime > _OLD:
                    lock = _locked(path)
                    shutil.rmtree(path, ignore_errors=True)
                    os.close(lock)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _is_ours(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700


def _locked(path: Path) -> int:
    """A descriptor of the folder that holds its lock. Raises OSError if somebody else has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor

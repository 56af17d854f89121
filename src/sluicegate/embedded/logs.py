"""The server's log: what was written to it since a moment, and keeping it from growing for ever."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["LARGEST_LOG_BYTES", "log_since", "log_size", "rotate"]

LARGEST_LOG_BYTES = 8 * 1024 * 1024
_LONGEST_READ = 64 * 1024


def rotate(log: Path, largest: int = LARGEST_LOG_BYTES) -> None:
    """Move the text of a log that has grown past ``largest`` bytes to ``LOG.1``, replacing that.

    The server keeps its descriptor, so the file is copied and cut, not renamed; the server appends, so it goes on at
    the new end. A line written between the two is lost. A disk too full for the copy costs the old text.
    """
    try:
        if log.stat().st_size <= largest:
            return
        old = log.with_name(f"{log.name}.1")
        try:
            shutil.copyfile(log, old)
            old.chmod(0o600)
        except OSError:
            old.unlink(missing_ok=True)
        os.truncate(log, 0)
    except FileNotFoundError:
        return


def log_size(log: Path) -> int:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def log_since(log: Path, offset: int) -> str:
    """What has been written to the log since it was ``offset`` bytes long; of much, the end."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = offset if offset <= size else 0
            file.seek(max(begin, size - _LONGEST_READ))
            return file.read().decode(errors="replace")
    except OSError:
        return ""

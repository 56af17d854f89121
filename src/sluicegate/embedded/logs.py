"""Keeping the server's log from growing for ever."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["LARGEST_LOG_BYTES", "rotate"]

LARGEST_LOG_BYTES = 8 * 1024 * 1024


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

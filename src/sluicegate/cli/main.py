"""The ``sluicegate`` process. Its exit status: 0 done (nothing to do is done), 1 refused, deferred, not found or out of
reach, 2 wrong usage or an invalid argument, 130 stopped with Ctrl-C, 141 the reader of the output has gone.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

UNWRITABLE = 1
INTERRUPTED = 130
READER_GONE = 141


def main() -> NoReturn:
    """Run the command in ``sys.argv`` and exit. Nothing that happens ends in a traceback."""
    _open_missing_streams()
    try:
        # Inside, so that Ctrl-C is quiet from the first moment on.
        from sluicegate.cli.app import leave, run
        from sluicegate.cli.ending import StillRunning
        from sluicegate.cli.output import Unwritable, flush
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    left = False
    try:
        try:
            status = run(sys.argv[1:])
        except StillRunning as running:
            left = True
            status = leave(running, sys.argv[1:])
        flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Unwritable as error:
        _stop_writing()
        status = READER_GONE if error.reader_gone else UNWRITABLE
        if not error.reader_gone:
            os.write(2, f"sluicegate: {error}\n".encode())
    if left:
        # Python would wait for it.
        os._exit(status)
    sys.exit(status)


def _open_missing_streams() -> None:
    # A parent may start us with closed descriptors; the lowest free number is the missing stream's own.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - open for as long as the process lives


def _stop_writing() -> None:
    # Python flushes once more when it ends; that must not meet the same fault again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()

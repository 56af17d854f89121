"""``python -m sluicegate.embedded``: run a program against the private PostgreSQL, look at it, stop it.

run DATA_DIR -- COMMAND …   runs COMMAND with PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE set, as psql and
                            pg_dump want them, and keeps PostgreSQL up meanwhile; exits as COMMAND does
status DATA_DIR             prints what is known as one JSON object
stop DATA_DIR [--force]     stops it; with --force also under the commands that use it
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sluicegate.embedded.attachment import attach
from sluicegate.embedded.reports import status, stop
from sluicegate.errors import SluicegateError

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Exit status: the command's own; else 0, or 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m sluicegate.embedded", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("run", "status", "stop"))
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--force", action="store_true")
    given = sys.argv[1:] if arguments is None else arguments
    cut = given.index("--") if "--" in given else len(given)
    options, command = parser.parse_args(given[:cut]), given[cut + 1 :]
    if (options.verb == "run") != bool(command):
        parser.error("run needs a command after --, and nothing else takes one")
    try:
        if options.verb == "run":
            return _run(options.data_dir, command)
        if options.verb == "status":
            sys.stdout.write(json.dumps(status(options.data_dir).to_dict(), indent=2) + "\n")
        else:
            stop(options.data_dir, force=options.force)
    except SluicegateError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _run(data_dir: Path, command: list[str]) -> int:
    with attach(data_dir, label=Path(command[0]).name) as attachment:
        address = urlsplit(attachment.dsn)
        place = parse_qs(address.query)
        wanted = {
            "PGHOST": place["host"][0],
            "PGPORT": place["port"][0],
            "PGUSER": address.username or "",
            "PGPASSWORD": address.password or "",
            "PGDATABASE": address.path.removeprefix("/"),
        }
        unwanted = ("PGHOSTADDR", "PGSERVICE", "PGOPTIONS")
        kept = {name: value for name, value in os.environ.items() if name not in unwanted}
        try:
            return subprocess.run(command, env=kept | wanted, check=False).returncode
        except OSError as error:
            sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
            return 1


if __name__ == "__main__":
    raise SystemExit(main())

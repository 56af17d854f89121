"""A cluster opens only with its own major version of PostgreSQL: what to run to carry it over."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from sluicegate.embedded.binaries import Binaries, installed_majors
from sluicegate.embedded.layout import DataDir
from sluicegate.errors import EmbeddedError

__all__ = ["commands", "require_same_major"]


def require_same_major(data: DataDir, binaries: Binaries) -> None:
    """Raise EmbeddedError, with the commands to run, if the cluster is of another major version than the programs."""
    written_by = (data.cluster / "PG_VERSION").read_text(encoding="ascii").strip()
    if written_by == str(binaries.major):
        return
    old = installed_majors().get(int(written_by)) if written_by.isdigit() else None
    missing = "" if old else f" First install PostgreSQL {written_by} and put its directory of programs for OLD below."
    raise EmbeddedError(
        f"The data directory {data.path} was written by PostgreSQL {written_by}, and the programs in {binaries.bindir} "
        f"are PostgreSQL {binaries.version}: a cluster opens only with its own major version.",
        next_step=f"Either go on with PostgreSQL {written_by}: set SLUICEGATE_BINDIR={old or 'OLD'}. Or carry the data over to "
        f"{binaries.major} with these commands (psql says that the role and the database sluicegate already exist; "
        f"that is expected):{missing}\n" + "\n".join(commands(data, binaries, written_by, old)),
    )


def commands(data: DataDir, binaries: Binaries, written_by: str, old: Path | None) -> list[str]:
    """Shell commands that dump the old cluster, move it aside, make a new one and restore into it."""
    python = f"{shlex.quote(sys.executable)} -m sluicegate.embedded"
    place, kept = shlex.quote(str(data.path)), shlex.quote(f"{data.cluster}-{written_by}")
    dump = shlex.quote(str(data.path / f"from-{written_by}.sql"))
    with_old = f"SLUICEGATE_BINDIR={shlex.quote(str(old)) if old else 'OLD'}"
    with_new = f"SLUICEGATE_BINDIR={shlex.quote(str(binaries.bindir))}"
    dump_program, psql = shlex.quote(str(binaries.program("pg_dumpall"))), shlex.quote(str(binaries.program("psql")))
    return [
        f"{with_old} {python} run {place} -- {dump_program} --file={dump}",
        f"{python} stop {place}",
        f"mv {shlex.quote(str(data.cluster))} {kept}",
        f"{with_new} {python} run {place} -- {psql} --quiet --dbname=sluicegate --file={dump}",
    ]

"""The versions that meet here: Python, the library, the driver, the server, the binaries it was started from."""

from __future__ import annotations

import platform
import re

import psycopg

from sluicegate.ops.checks.result import Check, Look
from sluicegate.sql.manifest import library_version

WHY = "Sluicegate needs Python 3.11 and PostgreSQL 15 or newer, a database in UTF-8, and the driver's compiled part."


def check_versions(look: Look) -> Check:
    row = look.cursor.execute(
        "select current_setting('server_version'), current_setting('server_version_num')::integer,"
        " current_setting('server_encoding')",
        prepare=False,
    ).fetchone()
    assert row is not None
    server, number, encoding = row
    facts: dict[str, object] = {
        "python": platform.python_version(),
        "sluicegate": library_version(),
        "server": server,
        "server_encoding": encoding,
        "driver": psycopg.__version__,
        "driver_implementation": psycopg.pq.__impl__,
        "embedded_binary": look.circumstances.binary_version,
    }
    found = (
        f"Python {facts['python']}, sluicegate {facts['sluicegate']}, PostgreSQL {server} ({encoding}),"
        f" psycopg {psycopg.__version__} ({psycopg.pq.__impl__})"
    )
    if look.circumstances.binary_version is not None:
        found += f", embedded binaries {look.circumstances.binary_version}"
    found += "."
    if number < 150000:
        return Check(
            "versions",
            "fail",
            found,
            WHY,
            "Use a newer server, or none: without a DSN Sluicegate brings its own.",
            facts=facts,
        )
    if encoding != "UTF8":
        step = "Create the database with: create database NAME encoding 'UTF8' template template0"
        return Check("versions", "fail", found, WHY, step, facts=facts)
    if look.circumstances.binary_version is not None and _number(look.circumstances.binary_version) != _number(server):
        step = "Stop the embedded server (it ends by itself 60 s after its last client) and start it again."
        return Check(
            "versions",
            "fail",
            found,
            "A server whose files are replaced while it runs breaks each new connection.",
            step,
            facts=facts,
        )
    if psycopg.pq.__impl__ == "python":
        step = "Install the compiled driver: pip install 'psycopg[binary]'"
        return Check(
            "versions", "warn", found, "The driver's Python implementation halves the rate of calls.", step, facts=facts
        )
    return Check("versions", "ok", found, WHY, facts=facts)


def _number(version: str) -> str | None:
    found = re.search(r"\d+(\.\d+)*", version)
    return found.group() if found else None

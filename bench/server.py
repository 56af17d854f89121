"""A database to measure in: a fresh one on the server of a DSN, or on a private PostgreSQL that lives as long."""

import os
import platform
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from sluicegate.embedded import attach, stop
from sluicegate.sql.migrate import migrate

_SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
)
_COMMITS = 200


@dataclass(frozen=True)
class Place:
    """``dsn`` names a fresh, migrated database; ``facts`` are what to know about its server before reading figures."""

    dsn: str
    facts: dict[str, str]


@contextmanager
def database(dsn: str | None) -> Iterator[Place]:
    """A database of its own, dropped at the end; without ``dsn``, on a private PostgreSQL that is removed as well."""
    if dsn is None:
        # Beside the working directory and not in a temporary one, which may be a file system without a disk.
        home = Path(tempfile.mkdtemp(prefix="sluicegate-bench-", dir=os.environ.get("TMPDIR", "/var/tmp")))
        try:
            with attach(home / "data", linger=0) as attachment:
                yield from _fresh(attachment.dsn, f"a private PostgreSQL below {home}")
            stop(home / "data")
        finally:
            shutil.rmtree(home, ignore_errors=True)
    else:
        yield from _fresh(dsn, "the server of --dsn")


@contextmanager
def another(dsn: str) -> Iterator[str]:
    """One more fresh, migrated database on a server, dropped at the end; gives its DSN."""
    name = f"sluicegate_bench_{os.getpid()}_{secrets.token_hex(4)}"
    identifier = sql.Identifier(name)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(identifier))
        try:
            own = make_conninfo(dsn, dbname=name)
            with psycopg.connect(own, autocommit=True) as connection:
                migrate(connection)
            yield own
        finally:
            admin.execute(sql.SQL("drop database if exists {} with (force)").format(identifier))


def keep_autovacuum_out(dsn: str) -> None:
    """Out of all figures alike, whenever it would have come."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        tables = connection.execute("select tablename from pg_tables where schemaname = 'sluicegate'").fetchall()
        for (table,) in tables:
            connection.execute(f'alter table sluicegate."{table}" set (autovacuum_enabled = false)')


def _fresh(dsn: str, where: str) -> Iterator[Place]:
    with another(dsn) as own:
        with psycopg.connect(own, autocommit=True) as connection:
            facts = {"where": where, **_facts(connection)}
        yield Place(own, facts)


def _facts(connection: psycopg.Connection[Any]) -> dict[str, str]:
    rows = connection.execute(
        "select name, current_setting(name) from unnest(%s::text[]) with ordinality as n(name, ord) order by ord",
        [list(_SETTINGS)],
    ).fetchall()
    connection.execute("create table commit_probe (n integer)")
    started = time.perf_counter()
    for number in range(_COMMITS):
        connection.execute("insert into commit_probe values (%s)", [number])
    rate = _COMMITS / (time.perf_counter() - started)
    connection.execute("drop table commit_probe")
    return {
        **dict(rows),
        "autovacuum": "off for the tables measured",
        "commits/s of one connection": f"{rate:,.0f}",
        "cpus": str(os.cpu_count()),
        "python": platform.python_version(),
    }

"""Migrators that run beside the test: in a thread, or in a process that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg

from sluicegate.sql.migrate import MigrationReport
from tests.sql.small import Small
from tests.support.waiting import eventually

_PROGRAM = """
import sys
from pathlib import Path
import psycopg
from sluicegate.sql.migrate import migrate
migrate(psycopg.connect(sys.argv[1], application_name="doomed"), directory=Path(sys.argv[2]))
"""


def connect(dsn: str, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, prepare_threshold=None, **options)


class Background:
    """A migration in a thread of its own, and what it says."""

    def __init__(self, small: Small, dsn: str, **options: Any) -> None:
        self.said: list[str] = []
        self._pool = ThreadPoolExecutor(1)
        self.result: Future[MigrationReport] = self._pool.submit(
            lambda: small.migrate(f"{dsn}&application_name=migrator", progress=self.said.append, **options)
        )

    def hear(self) -> None:
        """Return when it has said something; raise what it raised."""
        eventually(lambda: self.said or self.result.done(), "a word from the migrator")
        if not self.said:
            self.result.result()

    def report(self) -> MigrationReport:
        report = self.result.result(60)
        self._pool.shutdown()
        return report


@contextmanager
def doomed(small: Small, dsn: str) -> Iterator[subprocess.Popen[bytes]]:
    """A migrator in a process of its own, killed at the latest when the block ends."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, dsn, str(small.root)], env=environment)
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def kill_with_backend(process: subprocess.Popen[bytes], watcher: psycopg.Connection[Any]) -> None:
    """End a migrator and its server process at once, as a crash of both machines would."""
    kill(process)
    watcher.execute("select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'doomed'")

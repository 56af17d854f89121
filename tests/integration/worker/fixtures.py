"""Fixtures for tests with worker processes: whatever a test leaves running is found, and killed after it."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.worker.support import MARK, Marked, StartWorker, WorkerProcess


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Marked]:
    """Marks every process that is started by this test, or by what it starts."""
    mark = Marked()
    monkeypatch.setenv(MARK, mark.value)
    yield mark
    for pid in mark.pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start_worker(dsn: str, marked: Marked, tmp_path: Path) -> Iterator[StartWorker]:
    """``start_worker(command, **options)`` starts a worker process on the test's database."""
    workers: list[WorkerProcess] = []

    def start(command: list[str], **options: Any) -> WorkerProcess:
        worker = WorkerProcess.start(dsn, command, tmp_path, **options)
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.kill()

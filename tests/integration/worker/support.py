"""Running commands for jobs, in this process and in worker processes of their own, and looking for what they leave."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluicegate import Client
from sluicegate.model import JobDetail
from sluicegate.worker.exec import ExecEvent, ExecReport, run_exec
from tests.support.servers import ROOT
from tests.support.waiting import eventually

QUEUE = "commands"
MARK = "EXEC_TEST_MARK"


@dataclass
class Outcome:
    """What a run over some jobs came to; ``jobs`` in the order they were enqueued."""

    report: ExecReport
    events: list[ExecEvent]
    jobs: list[JobDetail]

    @property
    def job(self) -> JobDetail:
        (job,) = self.jobs
        return job

    @property
    def result(self) -> Any:
        return self.job.job.result

    @property
    def error(self) -> str:
        assert self.job.job.error is not None
        return self.job.job.error


async def run_jobs(
    client: Client, command: Sequence[str], payloads: Sequence[Any] = (None,), *, enqueue: Any = None, **options: Any
) -> Outcome:
    """Enqueue a job for each payload, run the command for all of them, and look at what became of the jobs."""
    ids = [(await client.enqueue(QUEUE, payload, **(enqueue or {}))).id for payload in payloads]
    events: list[ExecEvent] = []
    report = await run_exec(client, QUEUE, command, drain=True, on_event=events.append, **options)
    return Outcome(report, events, [await client.get_job(job_id) for job_id in ids])


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


class Marked:
    """Finds processes by a variable in the environment they were started with."""

    def __init__(self) -> None:
        self.value = uuid.uuid4().hex
        self._line = f"{MARK}={self.value}".encode()

    def pids(self, *, running: str = "") -> list[int]:
        """Every process with the mark; with ``running``, those with that text in their command line."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                ours = self._line in (entry / "environ").read_bytes().split(b"\0")
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if ours and running in words:
                found.append(int(entry.name))
        return found

    def wait_gone(self, *, running: str = "", timeout: float = 10) -> None:
        eventually(lambda: not self.pids(running=running), f"no process left {running}", timeout)

    def wait_running(self, text: str, number: int, timeout: float = 20) -> list[int]:
        """The pids, once exactly so many marked processes run a command line with that text."""
        return eventually(
            lambda: pids if len(pids := self.pids(running=text)) == number else [], f"{number} of {text}", timeout
        )


@dataclass
class WorkerProcess:
    """``exec`` in a process of its own; see ``tests.integration.worker.process``."""

    process: "subprocess.Popen[bytes]"
    output: Path
    started: list[int] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        dsn: str,
        command: Sequence[str],
        folder: Path,
        *,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> "WorkerProcess":
        number = uuid.uuid4().hex
        output = folder / f"worker-{number}.jsonl"
        with output.open("wb") as stdout, (folder / f"worker-{number}.err").open("wb") as stderr:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.integration.worker.process",
                    json.dumps({"queue": QUEUE, "command": list(command), **options}),
                ],
                cwd=ROOT,
                env={**os.environ, "SLUICEGATE_DSN": dsn, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        return cls(process, output)

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def errors(self) -> str:
        return self.output.with_suffix(".err").read_text()

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.read_text().splitlines()]

    def wait_told(self, kind: str, number: int = 1, timeout: float = 20) -> list[dict[str, Any]]:
        def look() -> list[dict[str, Any]]:
            assert self.process.poll() is None or self.told(), self.errors()
            found = [event for event in self.told() if event.get("kind") == kind]
            return found if len(found) >= number else []

        return eventually(look, f"{number} events {kind}", timeout)

    def report(self, timeout: float = 30) -> dict[str, Any]:
        """Wait for the process to end by itself; its report."""
        code = self.process.wait(timeout)
        assert code == 0, self.errors()
        report: dict[str, Any] = self.told()[-1]["report"]
        return report


StartWorker = Callable[..., WorkerProcess]

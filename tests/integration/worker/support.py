"""Running commands for jobs, in this process and in worker processes of their own, and looking for what they leave."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluicegate import Client
from sluicegate.model import JobDetail
from sluicegate.worker.exec import WorkerEvent, WorkerReport, run_exec
from tests.support.servers import ROOT
from tests.support.waiting import eventually_async

QUEUE = "commands"
MARK = "EXEC_TEST_MARK"


@dataclass
class Outcome:
    """What a run over some jobs came to; ``jobs`` in the order they were enqueued."""

    report: WorkerReport
    events: list[WorkerEvent]
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
    events: list[WorkerEvent] = []
    report = await run_exec(client, QUEUE, command, drain=True, on_event=events.append, **options)
    return Outcome(report, events, [await client.get_job(job_id) for job_id in ids])


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


class Marked:
    """Finds processes by a variable in the environment they were started with."""

    def __init__(self, variable: str = MARK) -> None:
        self.variable = variable
        self.value = uuid.uuid4().hex
        self._line = f"{variable}={self.value}".encode()

    def pids(self, *, running: str = "") -> list[int]:
        """Every process with the mark; with ``running``, those whose command line starts with that text."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                ours = self._line in (entry / "environ").read_bytes().split(b"\0")
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if ours and words.startswith(running):
                found.append(int(entry.name))
        return found

    async def gone(self, running: str = "", timeout: float = 20) -> None:
        """Return once no process has the mark (and a command line that starts with that text)."""

        async def look() -> bool:
            return not self.pids(running=running)

        await eventually_async(look, f"no marked process {running}", timeout)

    async def running(self, text: str, number: int, timeout: float = 20) -> list[int]:
        """The pids, once exactly so many marked processes have a command line that starts with that text."""

        async def look() -> list[int]:
            return pids if len(pids := self.pids(running=text)) == number else []

        return await eventually_async(look, f"{number} marked processes {text}", timeout)


@dataclass
class WorkerProcess:
    """``exec`` in a process of its own; see ``tests.integration.worker.process``."""

    process: "subprocess.Popen[bytes]"
    output: Path

    @classmethod
    def start(
        cls,
        dsn: str,
        command: Sequence[str],
        folder: Path,
        *,
        environment: dict[str, str] | None = None,
        own_group: bool = False,
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
                process_group=0 if own_group else None,
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
        """Every event so far, and at last the report."""
        complete, _, _ = self.output.read_text().rpartition("\n")
        return [json.loads(line) for line in complete.splitlines()]

    async def wait_told(self, kind: str, number: int = 1, timeout: float = 30) -> list[dict[str, Any]]:
        """The events of that kind, once there are so many."""

        async def look() -> list[dict[str, Any]]:
            found = [event for event in self.told() if event.get("kind") == kind]
            assert len(found) >= number or self.process.poll() is None, self.errors()
            return found if len(found) >= number else []

        return await eventually_async(look, f"{number} events {kind}", timeout)

    async def is_serving(self) -> bool:
        """Whether it would stop softly if it were told to."""
        assert self.process.poll() is None, self.errors()
        return bool(_caught_signals(self.pid) >> (signal.SIGTERM - 1) & 1)

    async def report(self, timeout: float = 40) -> dict[str, Any]:
        """Wait for the process to end by itself; its report."""

        async def look() -> bool:
            return self.process.poll() is not None

        await eventually_async(look, "the end of the worker", timeout)
        assert self.process.returncode == 0, self.errors()
        report: dict[str, Any] = self.told()[-1]["report"]
        return report


def _caught_signals(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigCgt")).split()[1], 16)


StartWorker = Callable[..., WorkerProcess]

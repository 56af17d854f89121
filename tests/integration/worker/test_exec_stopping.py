"""Being stopped: softly, at once, and without any warning."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sluicegate import Client
from sluicegate.model import Backoff, ClaimAnswers, NewJob
from sluicegate.worker.exec import StopRequest, WorkerEvent, run_exec
from tests.integration.worker.support import QUEUE, Marked, StartWorker, sh
from tests.support.waiting import eventually_async

# Several processes of one command: in its group, in groups of their own (`set -m`), in sessions of their own.
FAMILY = [
    "bash",
    "-c",
    "set -m; sleep 301 & (sleep 302; true) & setsid sleep 303 & (setsid sleep 304 &); sleep 305; true",
]
STUBBORN = sh("trap '' TERM; sleep 301 & while :; do sleep 0.1; done")


async def enqueue(client: Client, jobs: int = 1) -> list[int]:
    return [(await client.enqueue(QUEUE)).id for _ in range(jobs)]


async def states(client: Client, ids: list[int]) -> list[str]:
    return [(await client.get_job(job_id)).job.state for job_id in ids]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_lets_running_commands_end_and_claims_nothing_more(
    client: Client, start_worker: StartWorker, tmp_path: Path, number: signal.Signals
) -> None:
    ids = await enqueue(client, 5)
    go = tmp_path / "go"
    worker = start_worker(sh(f"while [ ! -e {go} ]; do sleep 0.05; done"), concurrency=2)
    await worker.wait_told("started", 2)
    worker.signal(number)
    told = await worker.wait_told("stopping")
    assert told[0]["message"] == f"{number.name} was received"
    go.touch()
    report = await worker.report()
    assert (report["claimed"], report["done"], report["released"], report["lost"]) == (2, 2, 0, 0)
    assert await states(client, ids) == ["done", "done", "pending", "pending", "pending"]


async def test_what_outlasts_the_grace_is_ended_and_given_back(
    client: Client, start_worker: StartWorker, marked: Marked
) -> None:
    ids = await enqueue(client, 3)
    worker = start_worker(FAMILY, concurrency=3, grace=0.5)
    await marked.running("sleep 30", 15)
    worker.signal(signal.SIGTERM)
    report = await worker.report()
    assert (report["released"], report["failed"], report["lost"]) == (3, 0, 0)
    await marked.gone()
    for job_id in ids:
        detail = await client.get_job(job_id)
        assert (detail.job.state, detail.job.attempt, detail.job.lease_expires_at) == ("pending", 1, None)
        (attempt,) = detail.attempts
        assert attempt.outcome == "released"
        assert attempt.error is not None
        assert attempt.error.startswith("The worker was stopped and ended the command")


async def test_a_command_that_does_not_listen_is_killed_in_the_end(
    client: Client, start_worker: StartWorker, marked: Marked
) -> None:
    ids = await enqueue(client)
    worker = start_worker(STUBBORN, grace=0)
    await marked.running("sleep 301", 1)
    worker.signal(signal.SIGTERM)
    assert (await worker.report())["released"] == 1
    await marked.gone()
    assert await states(client, ids) == ["pending"]


async def test_a_second_signal_ends_everything_at_once(
    client: Client, start_worker: StartWorker, marked: Marked
) -> None:
    ids = await enqueue(client, 2)
    worker = start_worker(STUBBORN, concurrency=2, grace=600)
    await marked.running("sleep 301", 2)
    worker.signal(signal.SIGINT)
    await worker.wait_told("stopping")
    worker.signal(signal.SIGINT)
    report = await worker.report(timeout=15)
    assert report["released"] == 2
    first, again = await worker.wait_told("stopping", 2)
    assert (first["message"], again["message"]) == (
        "SIGINT was received",
        "what still runs is ended now, as it was asked to stop again",
    )
    await marked.gone()
    assert await states(client, ids) == ["pending", "pending"]


async def test_an_idle_worker_ends_at_once(start_worker: StartWorker) -> None:
    worker = start_worker(["true"])
    await eventually_async(worker.is_serving, "the signal handlers")
    worker.signal(signal.SIGTERM)
    assert (await worker.report())["claimed"] == 0


async def test_commands_that_are_stopped_along_with_the_worker_are_given_back(
    client: Client, start_worker: StartWorker, marked: Marked
) -> None:
    """As a service manager does it that signals the whole control group."""
    ids = await enqueue(client)
    worker = start_worker(["sleep", "301"], grace=60)
    (command,) = await marked.running("sleep 301", 1)
    worker.signal(signal.SIGTERM)
    await worker.wait_told("stopping")
    os.kill(command, signal.SIGTERM)
    assert (await worker.report())["released"] == 1
    assert await states(client, ids) == ["pending"]


async def test_killing_the_worker_leaves_nothing_of_its_commands_behind(
    client: Client, start_worker: StartWorker, marked: Marked, tmp_path: Path
) -> None:
    """Not in the group, nor in another group or session, and no file; another worker takes the jobs over."""
    ids = await enqueue(client, 2)
    private = tmp_path / "private"
    private.mkdir()
    worker = start_worker(FAMILY, concurrency=2, lease_seconds=2, environment={"TMPDIR": str(private)})
    await marked.running("sleep 30", 10)
    assert len(entries(private)) == 1
    worker.kill()
    await marked.gone()
    await eventually_async(lambda: no_entries(private), "an empty folder")
    second = start_worker(["true"], concurrency=2)
    await second.wait_told("done", 2)
    for job_id in ids:
        detail = await client.get_job(job_id)
        assert detail.attempts[0].outcome == "completed"
        assert detail.attempts[1].outcome in ("lease_expired", "reaped"), "taken over, by whoever came first"
        assert (detail.job.state, detail.job.attempt) == ("done", 2)


async def test_a_guardian_that_was_stopped_still_ends_the_commands_of_a_worker_that_dies(
    client: Client, start_worker: StartWorker, marked: Marked
) -> None:
    await enqueue(client, 1)
    worker = start_worker(sh("kill -STOP $PPID; exec sleep 301"), lease_seconds=60)
    await marked.running("sleep 301", 1)
    worker.kill()
    await marked.gone()
    assert marked.pids() == []


async def test_killing_worker_and_guardian_together_leaves_no_command_behind_and_no_file_for_long(
    client: Client, start_worker: StartWorker, marked: Marked, tmp_path: Path
) -> None:
    """The kernel ends the commands; the next worker removes the files."""
    private = tmp_path / "private"
    private.mkdir()
    environment = {"TMPDIR": str(private)}
    await enqueue(client, 3)
    worker = start_worker(["sleep", "301"], concurrency=3, lease_seconds=60, environment=environment)
    await marked.running("sleep 301", 3)
    worker.signal(signal.SIGSTOP)
    os.kill(guardian_of(marked), signal.SIGKILL)
    worker.kill()
    await marked.gone()
    (left,) = entries(private)
    assert len(entries(private / left)) == 3

    second = start_worker(["true"], drain=True, environment=environment)
    await second.report()
    assert entries(private) == [left], "what is young may be in the making"
    os.utime(private / left, (0, 0))
    third = start_worker(["true"], drain=True, environment=environment)
    await third.report()
    assert entries(private) == []


async def test_the_folder_of_a_living_worker_is_left_alone(
    client: Client, start_worker: StartWorker, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    await enqueue(client)
    worker = start_worker(["sleep", "301"], grace=0, environment={"TMPDIR": str(private)})
    await worker.wait_told("started")
    (folder,) = entries(private)
    os.utime(private / folder, (0, 0))
    await start_worker(["true"], drain=True, environment={"TMPDIR": str(private)}).report()
    assert entries(private) == [folder]
    worker.signal(signal.SIGTERM)
    await worker.report()
    assert entries(private) == []


async def test_killing_the_guardian_costs_an_attempt_and_nothing_else(
    client: Client, start_worker: StartWorker, marked: Marked, tmp_path: Path
) -> None:
    """The worker kills what the guardian guarded, fails the attempts, for a command may be the killer, and goes on with a new guardian."""
    jobs = [NewJob(QUEUE, number, backoff=Backoff(0.1)) for number in range(2)]
    ids = [job.id for job in await client.enqueue_many(jobs)]
    script = f"[ -e {tmp_path}/go ] && exit 0; sleep 301 & sleep 302; true"
    worker = start_worker(sh(script), concurrency=2)
    await marked.running("sleep 30", 4)
    (tmp_path / "go").touch()
    os.kill(guardian_of(marked), signal.SIGKILL)
    await worker.wait_told("done", 2)
    await marked.gone("sleep 30")
    worker.signal(signal.SIGTERM)
    report = await worker.report()
    assert (report["failed"], report["done"], report["lost"]) == (2, 2, 0)
    detail = await client.get_job(ids[0])
    assert (
        detail.attempts[1].error == "The process that guards the worker's commands was killed, and the command with it."
    )
    await marked.gone()


async def test_ctrl_c_in_a_terminal_does_not_reach_the_commands(
    client: Client, start_worker: StartWorker, marked: Marked, tmp_path: Path
) -> None:
    """The terminal signals the worker's process group; commands and guardian are in others."""
    ids = await enqueue(client)
    go = tmp_path / "go"
    worker = start_worker(sh(f"while [ ! -e {go} ]; do sleep 0.05; done"), own_group=True)
    await worker.wait_told("started")
    os.killpg(worker.pid, signal.SIGINT)
    await worker.wait_told("stopping")
    go.touch()
    assert (await worker.report())["done"] == 1
    assert await states(client, ids) == ["done"]


class LateClient(Client):
    """Its claims are answered only after the run has been told to stop."""

    stop: StopRequest

    async def claim_many(self, *arguments: Any, **options: Any) -> ClaimAnswers:
        answer = await super().claim_many(*arguments, **options)
        if not self.stop.asked.is_set():
            self.stop.ask()
            for _ in range(20):
                await asyncio.sleep(0)
        return answer


async def test_jobs_that_were_claimed_but_not_started_go_back_unspent(dsn: str, tmp_path: Path) -> None:
    async with LateClient(dsn) as client:
        client.stop = StopRequest()
        ids = await enqueue(client, 3)
        report = await run_exec(client, QUEUE, sh(f"touch {tmp_path}/ran"), concurrency=2, stop=client.stop)
        assert (report.claimed, report.released, report.done) == (2, 2, 0)
        for job_id in ids[:2]:
            job = (await client.get_job(job_id)).job
            assert (job.state, job.attempt, job.attempts_total) == ("pending", 0, 1)
    assert "ran" not in entries(tmp_path)


async def test_cancelling_the_task_ends_the_commands_and_gives_the_jobs_back(client: Client, marked: Marked) -> None:
    ids = await enqueue(client, 2)
    events: list[WorkerEvent] = []
    task = asyncio.create_task(run_exec(client, QUEUE, FAMILY, concurrency=2, on_event=events.append))
    await marked.running("sleep 30", 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await marked.gone()
    assert await states(client, ids) == ["pending", "pending"]
    assert [event.kind for event in events if event.kind == "released"] == ["released"] * 2


async def test_an_attempt_that_breaks_the_worker_ends_it_and_everything_it_runs(
    client: Client, marked: Marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours is no reason to leave commands running, nor to hide it."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("sluicegate.worker.execution.verdict", broken)
    await enqueue(client, 2)
    with pytest.raises(RuntimeError, match="a bug"):
        await run_exec(
            client, QUEUE, ["sh", "-c", '[ "$SLUICEGATE_JOB_ID" -lt 2 ] || sleep 301'], concurrency=2, timeout=2
        )
    await marked.gone()


async def test_signal_handlers_are_put_back(client: Client) -> None:
    def mine(*_: object) -> None:
        """A handler to recognise."""

    before = signal.signal(signal.SIGTERM, mine)
    try:
        await run_exec(client, QUEUE, ["true"], drain=True)
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def guardian_of(marked: Marked) -> int:
    (guardian,) = (pid for pid in marked.pids() if b"worker.guardian" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return guardian


def entries(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def no_entries(folder: Path) -> bool:
    return entries(folder) == []

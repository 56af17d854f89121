"""A permit comes back whatever happens to the task, thread or process it was taken for."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NoReturn

import pytest
from pydantic import AfterValidator

from sluicegate import App, Backoff, Cancel, Client, DeadLetter, NewJob, QuotaExceeded, Release, RetryAfter
from sluicegate.worker.crew import Crew
from sluicegate.worker.exec import StopRequest, WorkerEvent, run_exec
from tests.faults.watched import QUEUE, Watched, app_of, until
from tests.integration.worker.support import Marked, sh

SLOTS = 2


class Broken(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Exiting(Exception):
    """Ends the process of whoever asks what it says."""

    def __str__(self) -> str:
        raise SystemExit(4)

    __repr__ = __str__


class OfItsOwn(BaseException):
    """Nobody's Exception."""


def check(payload: Any) -> Any:
    if payload == "poison":
        raise KeyError("a fault of the check itself")
    return payload


Checked = Annotated[Any, AfterValidator(check)]


def throw(error: BaseException) -> Callable[[], NoReturn]:
    def do() -> NoReturn:
        raise error

    return do


def release_to_no_time() -> None:
    raise Release("not now", "tomorrow")  # type: ignore[arg-type]


def retry_in_the_past() -> None:
    raise RetryAfter(-1)


def refused_quota_of_nobody() -> None:
    raise QuotaExceeded("")


def leave_thread() -> None:
    _thread.exit()


def die_by_another_thread() -> None:
    """As when somebody ends a thread from outside: the exception comes up wherever it happens to be."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(SystemExit))
    while True:
        threading.Event().wait(0.001)


def lose_a_child() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(os.kill, pool.submit(os.getpid).result(), signal.SIGKILL).result()


ENDINGS: dict[str, Callable[[], object]] = {
    "return": lambda: None,
    "a result that cannot be kept": lambda: {object()},
    "a result too large": lambda: "x" * (2 << 20),
    "an exception": throw(ValueError("broken")),
    "one that cannot be told": throw(Broken()),
    "one that exits when it is told": throw(Exiting()),
    "a group of them": throw(BaseExceptionGroup("several", [SystemExit(1), ValueError("broken")])),
    "SystemExit": throw(SystemExit(3)),
    "KeyboardInterrupt": throw(KeyboardInterrupt()),
    "GeneratorExit": throw(GeneratorExit()),
    "StopIteration": throw(StopIteration()),
    "StopAsyncIteration": throw(StopAsyncIteration()),
    "CancelledError": throw(asyncio.CancelledError()),
    "TimeoutError": throw(TimeoutError()),
    "a BaseException": throw(OfItsOwn()),
    "a release": throw(Release("not now")),
    "a release to no time": release_to_no_time,
    "a retry": throw(RetryAfter(3600)),
    "a retry in the past": retry_in_the_past,
    "a cancel": throw(Cancel("nobody wants it")),
    "a dead letter": throw(DeadLetter("hopeless")),
    "a refused quota": throw(QuotaExceeded("account")),
    "a refused quota of nobody": refused_quota_of_nobody,
    "a dead child": lose_a_child,
}
ENDINGS_OF_THREADS: dict[str, Callable[[], object]] = {
    "a thread that leaves": leave_thread,
    "a thread that is killed": die_by_another_thread,
}


class Doors:
    """Jobs with payload True end as they are told; the others run until they are let out."""

    def __init__(self, end: Callable[[], object], slots: int | None, is_async: bool) -> None:
        self.inside = 0
        self.ended = 0
        self.door = threading.Event()
        self.app = App({QUEUE: {} if slots else {"max_workers": SLOTS}}, global_max_workers=slots)
        if is_async:

            async def do(payload: bool) -> object:
                if payload:
                    self.ended += 1
                    await asyncio.sleep(0)
                    return end()
                with self:
                    await asyncio.to_thread(self.door.wait)
                return None

            self.app.handler(queue=QUEUE, kind="")(do)
        else:

            def do_in_thread(payload: bool) -> object:
                if payload:
                    self.ended += 1
                    return end()
                with self:
                    self.door.wait()
                return None

            self.app.handler(queue=QUEUE, kind="")(do_in_thread)

    def __enter__(self) -> None:
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1


async def fill(client: Client, watched: Watched, doors: Doors) -> None:
    """As many run at once as there are slots, and then none."""
    await client.enqueue_many([NewJob(QUEUE, False, priority=-1)] * SLOTS)
    await until(lambda: doors.inside == SLOTS, "every slot is used")
    doors.door.set()
    await watched.all_permits_back()


@pytest.mark.parametrize("slots", [SLOTS, None], ids=["shared", "reserved"])
@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_it_comes_back_from(client: Client, ending: str, is_async: bool, slots: int | None) -> None:
    await ends(client, ENDINGS[ending], is_async, slots)


@pytest.mark.parametrize("ending", ENDINGS_OF_THREADS)
async def test_it_comes_back_from_a_dead_thread(client: Client, ending: str) -> None:
    await ends(client, ENDINGS_OF_THREADS[ending], False, SLOTS)


async def ends(client: Client, end: Callable[[], object], is_async: bool, slots: int | None) -> None:
    number = SLOTS + 1
    doors = Doors(end, slots, is_async)
    made = await client.enqueue_many([NewJob(QUEUE, True, max_attempts=1)] * number)
    async with Watched(client, doors.app) as watched:
        await until(lambda: doors.ended >= number, "all have ended")
        await fill(client, watched, doors)
        assert watched.worker.health().live
    for job in made.jobs:
        found = await client.get_job(job.id)
        assert all(attempt.outcome is not None for attempt in found.attempts), "it is recorded how each ended"


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_it_comes_back_when_the_payload_cannot_be_read(client: Client, is_async: bool) -> None:
    doors = Doors(lambda: None, SLOTS, is_async)
    await client.enqueue_many([NewJob(QUEUE, {"neither": "of both"})] * (SLOTS + 1))
    async with Watched(client, doors.app) as watched:
        await watched.told("dead_letter", SLOTS + 1)
        await fill(client, watched, doors)


async def test_it_comes_back_when_reading_the_payload_goes_wrong(client: Client) -> None:
    doors = Doors(lambda: None, SLOTS, True)
    app = App({QUEUE: {}}, global_max_workers=SLOTS)

    async def do(payload: Checked) -> None:
        with doors:
            await asyncio.to_thread(doors.door.wait)

    app.handler(queue=QUEUE, kind="")(do)
    made = await client.enqueue_many([NewJob(QUEUE, "poison", max_attempts=1)] * (SLOTS + 1))
    async with Watched(client, app) as watched:
        await watched.told("dead_letter", SLOTS + 1)
        await fill(client, watched, doors)
    assert "KeyError" in ((await client.get_job(made.jobs[0].id)).job.error or "")


async def test_it_comes_back_when_the_task_is_cancelled_from_outside(client: Client) -> None:
    """By somebody who cancels whatever tasks there are."""
    doors = Doors(lambda: None, SLOTS, True)
    victims: list[asyncio.Task[Any]] = []

    async def do(payload: bool) -> None:
        if not payload:
            with doors:
                await asyncio.to_thread(doors.door.wait)
            return
        task = asyncio.current_task()
        assert task is not None
        victims.append(task)
        await asyncio.Event().wait()

    app = App({QUEUE: {}}, global_max_workers=SLOTS)
    app.handler(queue=QUEUE, kind="")(do)
    made = await client.enqueue_many([NewJob(QUEUE, True, max_attempts=1)] * SLOTS)
    async with Watched(client, app, lease_seconds=60) as watched:
        await until(lambda: len(victims) == SLOTS, "both run")
        for task in victims:
            task.cancel()
        await watched.told("dead_letter", SLOTS)
        assert all(task.done() for task in victims), "neither handler goes on"
        assert watched.worker._run is not None
        run = watched.worker._run
        await until(lambda: not run._keeper._held, "nobody keeps the lease of a job that nobody does")
        await fill(client, watched, doors)
    for job in made.jobs:
        assert "raised CancelledError" in ((await client.get_job(job.id)).job.error or "")


async def test_it_comes_back_when_the_task_is_cancelled_before_its_first_step(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a task runs nothing, not even its end: the job was never begun, and goes back."""
    doors = Doors(lambda: None, SLOTS, True)
    start, cancelled = Crew.start, 0

    def cancel_at_once(crew: Crew, *arguments: Any, **named: Any) -> None:
        nonlocal cancelled
        before = set(crew._tasks)
        start(crew, *arguments, **named)
        if cancelled < SLOTS + 1:
            cancelled += 1
            (task,) = crew._tasks - before
            task.cancel()

    monkeypatch.setattr(Crew, "start", cancel_at_once)
    made = await client.enqueue_many([NewJob(QUEUE, True, max_attempts=1)])
    async with Watched(client, doors.app) as watched:
        released = await watched.told("released", SLOTS + 1)
        await watched.told("done")
        await fill(client, watched, doors)
        run = watched.worker._run
        assert run is not None
        await until(lambda: not run._keeper._held, "nobody keeps the lease of a job that nobody does")
    assert {event.message for event in released} == {"The task that was to do it was cancelled before it began."}
    found = await client.get_job(made.jobs[0].id)
    assert (found.job.state, found.job.attempt, doors.ended) == ("done", 1, 1)
    assert [attempt.started for attempt in found.attempts] == [True, False, False, False]


async def test_it_comes_back_when_no_thread_can_be_started(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as this machine allows: the job is given back as never begun, and no more are claimed for a while."""
    doors = Doors(lambda: None, SLOTS, False)
    start, refused = threading.Thread.start, 0

    def refuse(thread: threading.Thread) -> None:
        nonlocal refused
        if thread.name == f"{QUEUE}/" and refused < 1:
            refused += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    made = await client.enqueue(QUEUE, True, max_attempts=1)
    async with Watched(client, doors.app) as watched:
        (released,) = await watched.told("released")
        assert released.message == "No thread could be started: can't start new thread"
        run = watched.worker._run
        assert run is not None
        assert run.crew.rest > 0
        await watched.told("done")
        await fill(client, watched, doors)
    found = await client.get_job(made.id)
    assert (found.job.state, found.job.attempt) == ("done", 1)
    assert [attempt.started for attempt in found.attempts] == [True, False]


async def test_it_comes_back_from_a_handler_that_is_left_behind(client: Client) -> None:
    inside, door, out = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stay() -> None:
        inside.set()
        while not door.is_set():
            with contextlib.suppress(BaseException):
                await door.wait()
        out.set()

    job = await client.enqueue(QUEUE)
    async with Watched(client, app_of(stay, slots=SLOTS)) as watched:
        await inside.wait()
        watched.worker.ask_to_stop()
        watched.worker.ask_to_stop()
        report = await watched.worker.finished()
        await watched.all_permits_back()
        (left,) = watched.worker.left_behind
        (lost,) = await watched.told("lost")
        found = (await client.get_job(job.id)).job
        assert (report.lost, found.state, lost.message) == (1, "claimed", left)
        assert f"Handler stay did not end when the worker was stopped. Another worker may run job {job.id}" in left
        door.set()
        await out.wait()
        await until(lambda: not watched.worker.left_behind, "it has ended at last, and tells nobody of it")
    assert (await client.get_job(job.id)).job.state == "claimed"


async def test_it_comes_back_when_a_timeout_or_a_cancelled_job_ends_the_handler(client: Client) -> None:
    doors = Doors(lambda: None, SLOTS, True)
    app = App({QUEUE: {}}, global_max_workers=SLOTS)

    async def do(payload: bool) -> None:
        if payload:
            await asyncio.Event().wait()
        with doors:
            await asyncio.to_thread(doors.door.wait)

    app.handler(queue=QUEUE, kind="")(do)
    app.handler(queue=QUEUE, kind="short", timeout=0.01)(do)
    await client.enqueue_many([NewJob(QUEUE, True, kind="short", max_attempts=1)] * (SLOTS + 1))
    async with Watched(client, app, lease_seconds=1) as watched:
        await watched.told("dead_letter", SLOTS + 1)
        made = await client.enqueue_many([NewJob(QUEUE, True)] * SLOTS)
        await watched.told("started", 2 * SLOTS + 1)
        for job in made.jobs:
            await client.cancel(job.id)
        await watched.told("cancelled", SLOTS)
        await fill(client, watched, doors)


@pytest.mark.parametrize(
    "script",
    [
        "kill -9 $$",
        'until [ -e "$TOLD/$SLUICEGATE_JOB_ID" ]; do sleep 0.01; done; kill -9 $PPID; exec sleep 300',
        "exec 0<&- 1>&- 2>&-; kill -9 $$",
        "sleep 303 & kill -9 $$",
        "exit 7",
    ],
    ids=["killed", "its guardian killed", "without streams", "leaving a child", "failed"],
)
async def test_a_slot_of_exec_comes_back_from_a_dead_child(
    client: Client, marked: Marked, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.enqueue_many([NewJob(QUEUE, script, max_attempts=1)] * (SLOTS + 1))
    await client.enqueue_many([NewJob(QUEUE, "exec sleep 301", priority=100, backoff=Backoff(0))] * SLOTS)
    stop = StopRequest()
    monkeypatch.setenv("TOLD", str(tmp_path))

    def told(event: WorkerEvent) -> None:
        # A guardian that dies before it has said that a command began leaves a job that never started.
        if event.kind == "started" and event.claim is not None:
            (tmp_path / str(event.claim.job_id)).touch()

    command = [*sh('eval "$0"'), "{payload}"]
    run = asyncio.create_task(run_exec(client, QUEUE, command, concurrency=SLOTS, stop=stop, grace=0, on_event=told))
    await marked.running("sleep 301", SLOTS, timeout=60)
    stop.insist()
    stop.insist()
    report = await run
    # Who kills the guardian kills what runs beside it as well.
    assert report.failed >= SLOTS + 1
    assert report.claimed == report.failed + report.released + report.lost
    await marked.gone("sleep")

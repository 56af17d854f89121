"""A worker with handlers: what they are given, what they may answer, and what becomes of the job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from sluicegate import (
    App,
    Cancel,
    Client,
    Context,
    DeadLetter,
    InvalidArgument,
    QuotaExceeded,
    Release,
    RetryAfter,
    ThreadContext,
    Worker,
)
from sluicegate.testing import advance_clock, freeze_clock
from tests.conftest import Connection


class Change(BaseModel):
    path: str
    lines: int = 1


async def drained(client: Client, app: App, **options: Any) -> None:
    await Worker(client, app, drain=True, **options).run()


async def done(client: Client, app: App, payload: Any, kind: str = "do", queue: str = "q", **fields: Any) -> Any:
    """The job, with its attempts, after a worker had nothing left to do."""
    job = await client.enqueue(queue, payload, kind=kind, **fields)
    await drained(client, app)
    return await client.get_job(job.id)


async def test_a_handler_gets_the_fields_of_the_payload_as_the_types_it_names(client: Client) -> None:
    app = App()
    seen: list[object] = []

    @app.handler(queue="q")
    async def do(context: Context, number: int, change: Change, when: datetime | None = None) -> dict[str, object]:
        seen.append((number, change, when, context.attempt, context.job.kind, context.cancelled))
        return {"lines": change.lines}

    found = await done(client, app, {"number": 3, "change": {"path": "a"}})
    assert seen == [(3, Change(path="a"), None, 1, "do", False)]
    assert (found.job.state, found.job.result) == ("done", {"lines": 1})
    assert do.job({"number": 1, "change": {"path": "b"}}).kind == "do"
    with pytest.raises(InvalidArgument, match="needs change") as refused:
        do.job({"number": 1})
    assert refused.value.field == "payload"


async def test_a_function_that_is_not_async_runs_in_a_thread_and_can_say_how_far_it_is(client: Client) -> None:
    app = App()
    threads: list[object] = []

    @app.handler(queue="q")
    def do(context: ThreadContext, payload: list[int]) -> int:
        threads.append(threading.current_thread())
        context.note(f"{len(payload)} to add")
        assert context.heartbeat().status == "ok"
        return sum(payload)

    found = await done(client, app, [1, 2, 3])
    assert found.job.result == 6
    assert found.job.note == "3 to add"
    assert threads != [threading.main_thread()]


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"number": "three"}, "number"),
        ({}, "needs number"),
        ({"number": 1, "colour": "red"}, "does not take colour"),
        ([1], "no JSON object"),
    ],
)
async def test_a_payload_that_does_not_fit_is_a_dead_letter_at_once(client: Client, payload: Any, why: str) -> None:
    app = App()

    @app.handler(queue="q")
    async def do(number: int) -> None:
        raise AssertionError(number)

    found = await done(client, app, payload)
    assert (found.job.state, len(found.attempts)) == ("failed", 1)
    assert why in found.job.error


LATER = datetime(2100, 1, 1, tzinfo=UTC)
# What is raised, then the job's state, its counter, and the outcome, disposition and account of the attempt.
ANSWERS = {
    "release": (Release("not now", LATER), ("scheduled", 1), ("released", "requeued", None)),
    "release to no time": (Release("not now"), ("scheduled", 1), ("released", "requeued", None)),
    "retry": (RetryAfter(timedelta(hours=1)), ("scheduled", 1), ("failed", "retry_scheduled", None)),
    "cancel": (Cancel("nobody wants it"), ("cancelled", 1), ("cancelled", "cancelled", None)),
    "dead letter": (DeadLetter("hopeless"), ("failed", 1), ("failed", "dead_lettered", None)),
    "quota": (QuotaExceeded("claude-1", LATER), ("scheduled", 0), ("released", "requeued", "claude-1")),
    "error": (ValueError("broken"), ("scheduled", 1), ("failed", "retry_scheduled", None)),
    "exit": (SystemExit(3), ("scheduled", 1), ("failed", "retry_scheduled", None)),
    "interrupt": (KeyboardInterrupt(), ("scheduled", 1), ("failed", "retry_scheduled", None)),
}


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_what_a_handler_raises_says_what_becomes_of_the_job(client: Client, answer: str, is_async: bool) -> None:
    error, job, attempt = ANSWERS[answer]
    app = App()

    if is_async:

        @app.handler(queue="q", kind="do")
        async def do() -> None:
            raise error
    else:

        @app.handler(queue="q", kind="do")
        def do_in_thread() -> None:
            raise error

    found = await done(client, app, None)
    assert (found.job.state, found.job.attempt) == job
    (made,) = found.attempts
    assert (made.outcome, made.disposition, made.account) == attempt
    assert str(error) in (made.error or "")
    assert found.job.attempts_total == 1, "it is charged, whatever it came to"


async def test_what_a_task_of_a_handler_raises_counts_if_it_failed_alone(client: Client) -> None:
    """As a TaskGroup raises it: in a group."""
    app = App()

    @app.handler(queue="q", kind="do")
    async def do(errors: int) -> None:
        alone: list[Exception] = [ExceptionGroup("tasks", [QuotaExceeded("claude-1", LATER)])]
        raise ExceptionGroup("more tasks", alone + [ValueError("broken")] * (errors - 1))

    (made,) = (await done(client, app, {"errors": 1})).attempts
    assert (made.outcome, made.account, made.error) == ("released", "claude-1", "the quota of claude-1 is used up")
    (made,) = (await done(client, app, {"errors": 2})).attempts
    assert (made.outcome, made.account) == ("failed", None)
    assert "broken" in (made.error or "")


async def test_a_refused_quota_never_uses_up_the_attempts_of_a_job(client: Client, db: Connection) -> None:
    app = App()
    tries: list[int] = []

    @app.handler(queue="q", kind="do")
    async def do(context: Context) -> str:
        tries.append(context.attempt)
        if len(tries) < 5:
            # A time that has passed is none: the job rests for a minute, or it would be claimed and charged at once again.
            raise QuotaExceeded("claude-1", until=datetime(2020, 1, 1, tzinfo=UTC))
        return "done"

    await freeze_clock(db, datetime(2026, 6, 10, 12, 10, tzinfo=UTC))
    job = await client.enqueue("q", kind="do", max_attempts=1)
    for number in range(1, 6):
        await drained(client, app)
        assert len(tries) == number
        await advance_clock(db, timedelta(seconds=61))
    found = await client.get_job(job.id)
    assert (found.job.state, found.job.attempt, found.job.attempts_total) == ("done", 1, 5)
    assert tries == [1] * 5
    assert [attempt.account for attempt in found.attempts].count("claude-1") == 4


async def test_a_job_given_back_until_a_time_that_has_passed_is_not_claimed_and_charged_again_and_again(
    client: Client, db: Connection
) -> None:
    app = App()
    tries: list[int] = []

    @app.handler(queue="q", kind="do")
    async def do(context: Context) -> str:
        tries.append(context.attempt)
        if len(tries) < 4:
            context.release("not yet", not_before=datetime(2020, 1, 1, tzinfo=UTC))
        return "done"

    await freeze_clock(db, datetime(2026, 6, 10, 12, 10, tzinfo=UTC))
    job = await client.enqueue("q", kind="do", max_attempts=1)
    for number in range(1, 5):
        await drained(client, app)
        assert len(tries) == number
        await advance_clock(db, timedelta(seconds=61))
    assert (await client.get_job(job.id)).job.state == "done"


async def test_a_handler_that_takes_too_long_is_cancelled_and_its_attempt_has_failed(client: Client) -> None:
    app = App()
    ended = asyncio.Event()

    @app.handler(queue="q", kind="do", timeout=0.05)
    async def do() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    found = await done(client, app, None, max_attempts=1)
    assert ended.is_set()
    assert found.job.state == "failed"
    assert "longer than its timeout of 0.05 s" in found.job.error


async def test_a_job_without_a_handler_goes_back_for_a_while_and_was_no_attempt(client: Client) -> None:
    app = App()

    @app.handler(queue="q", kind="do")
    async def do() -> None: ...

    found = await done(client, app, None, kind="other")
    assert (found.job.state, found.job.attempt, found.job.attempts_total) == ("scheduled", 0, 1)
    assert "no handler for kind other in queue q, only for: do. The job goes back" in (found.attempts[0].error or "")


async def test_a_quota_that_comes_back_nobody_knows_when_is_tried_again_after_a_while(client: Client) -> None:
    app = App()

    @app.handler(queue="q", kind="do")
    async def do() -> None:
        raise QuotaExceeded("claude-1")

    found = await done(client, app, None)
    assert (found.job.state, found.job.attempt, found.attempts[0].account) == ("scheduled", 0, "claude-1")


async def test_kinds_without_a_handler_of_their_own_have_one_in_common(client: Client) -> None:
    app = App()
    seen: list[str] = []

    @app.handler(queue="q", kind="*")
    async def anything(context: Context, payload: Any) -> None:
        seen.append(f"anything: {context.job.kind} {payload}")

    @app.handler(queue="q", kind="do")
    async def do(payload: Any) -> None:
        seen.append(f"do: {payload}")

    await client.enqueue("q", 1, kind="do")
    await client.enqueue("q", 2, kind="other")
    await client.enqueue("q", 3)
    await drained(client, app)
    assert sorted(seen) == ["anything:  3", "anything: other 2", "do: 1"]


class Wordless(Exception):
    """Ends the process of whoever asks what it says."""

    class Result:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    def __str__(self) -> str:
        raise SystemExit(4)

    __repr__ = __str__


async def aiter_of() -> AsyncIterator[int]:
    yield 1


# What cannot be recorded as it was said, and what becomes of the job.
UNUSABLE: dict[str, tuple[Callable[[], object], str, str]] = {
    "a time without a zone": (
        lambda: Release("later", LATER.replace(tzinfo=None)),
        "scheduled",
        "Handler do raised InvalidArgument: not_before is 2100-01-01T00:00:00, a time without a zone",
    ),
    "how long, for when": (
        lambda: Release("later", timedelta(minutes=5)),  # type: ignore[arg-type]
        "scheduled",
        "Handler do raised InvalidArgument: not_before is 0:05:00, how long and not when",
    ),
    "how long, until when": (
        lambda: QuotaExceeded("a", timedelta(minutes=5)),  # type: ignore[arg-type]
        "scheduled",
        "Handler do raised InvalidArgument: until is 0:05:00, how long and not when",
    ),
    "no account": (lambda: QuotaExceeded(""), "scheduled", "Handler do raised InvalidArgument: account has 0 bytes"),
    "a time that is gone": (lambda: RetryAfter(-1), "scheduled", "Handler do raised InvalidArgument: seconds is -1"),
    "text that cannot be stored": (
        lambda: ValueError("a\0b \ud800"),
        "scheduled",
        "Handler do raised ValueError: a\\u0000b",
    ),
    "what cannot say what it is": (
        Wordless,
        "scheduled",
        "Handler do raised Wordless: (its text cannot be read: that raises SystemExit)",
    ),
    "a result that is no JSON": (
        lambda: {"files": [1, Path("a")]},
        "failed",
        "its result cannot be kept: result holds PosixPath('a') at result['files'][1]: PosixPath is not JSON",
    ),
    "a result in the way of its own look": (Wordless.Result, "failed", "and its result cannot be kept"),
    "a coroutine": (lambda: asyncio.sleep(0), "scheduled", "Handler do returned a coroutine, so the job is not done."),
    "a generator": (
        lambda: (number for number in range(3)),
        "scheduled",
        "Handler do returned a generator, so the job is not done.",
    ),
    "an asynchronous generator": (
        lambda: (number async for number in aiter_of()),
        "scheduled",
        "Handler do returned a generator, so the job is not done.",
    ),
    "a task": (
        lambda: asyncio.ensure_future(asyncio.Event().wait()),
        "scheduled",
        "Handler do returned Task, which has to be awaited, so the job is not done.",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
async def test_an_answer_that_cannot_be_recorded_harms_its_own_job_only(client: Client, case: str) -> None:
    answer, state, why = UNUSABLE[case]
    app = App()

    @app.handler(queue="q", kind="do")
    async def do(payload: bool) -> Any:
        if not payload:
            return "fine"
        made = answer()
        if isinstance(made, Exception):
            raise made
        return made

    other = await client.enqueue("q", False, kind="do")
    found = await done(client, app, True)
    assert found.job.state == state
    assert why in found.attempts[0].error
    assert (await client.get_job(other.id)).job.state == "done"


async def test_a_thread_sees_that_its_time_is_over(client: Client) -> None:
    app = App()

    @app.handler(queue="q", kind="do", timeout=0.05)
    def do(context: ThreadContext) -> None:
        while not context.cancelled:
            pass
        raise InterruptedError

    found = await done(client, app, None, max_attempts=1)
    assert (found.job.state, "longer than its timeout" in found.job.error) == ("failed", True)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_a_context_gives_the_job_back(client: Client, is_async: bool) -> None:
    app = App()

    if is_async:

        @app.handler(queue="q", kind="do")
        async def do(context: Context) -> None:
            context.release("not today", LATER)
    else:

        @app.handler(queue="q", kind="do")
        def do_in_thread(context: ThreadContext) -> None:
            context.release("not today", LATER)

    found = await done(client, app, None)
    assert (found.job.state, found.job.run_at, found.attempts[0].error) == ("scheduled", LATER, "not today")

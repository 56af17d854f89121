"""What users' tests are given: jobs run inline, and assertions about what waits."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from sluicegate import App, Client, InvalidArgument, SyncClient
from sluicegate.testing import advance_clock, assert_enqueued, assert_not_enqueued, clock_at, freeze_clock, run_jobs


def shop(client: Client) -> App:
    app = App()

    @app.handler(queue="orders")
    async def place(order: int) -> None:
        await client.enqueue("mail", {"order": order}, kind="confirm")

    @app.handler(queue="mail")
    async def confirm(order: int) -> str:
        return f"confirmed {order}"

    return app


async def test_jobs_are_run_with_those_that_they_enqueue(client: Client) -> None:
    job = await client.enqueue("orders", {"order": 18}, kind="place")
    await assert_enqueued(client, "orders", kind="place", payload={"order": 18}, number=1)
    await assert_not_enqueued(client, "mail")
    assert (await run_jobs(client, shop(client))).done == 2
    assert (await client.get_job(job.id)).job.state == "done"
    await assert_not_enqueued(client, "orders")


async def test_what_waits_is_told_when_something_else_was_expected(client: Client) -> None:
    await client.enqueue("mail", {"order": 1}, kind="confirm")
    with pytest.raises(AssertionError, match=r"1 do\. In the queue .*'order': 1") as told:
        await assert_enqueued(client, "mail", number=2)
    assert "2 jobs of mail should wait" in str(told.value)
    with pytest.raises(AssertionError, match=r"payload \{'order': 2\}"):
        await assert_enqueued(client, "mail", payload={"order": 2})
    with pytest.raises(AssertionError) as refused:
        await assert_not_enqueued(client, "mail")
    assert str(refused.value) == ("no job of mail should wait, and 1 do (kind, payload): [('confirm', {'order': 1})]")


async def test_a_handler_that_fails_fails_the_test_unless_that_is_expected(client: Client) -> None:
    app = App()

    @app.handler(queue="q", kind="")
    async def do() -> None:
        raise ValueError("broken")

    await client.enqueue("q", max_attempts=1)
    with pytest.raises(AssertionError, match="ValueError: broken"):
        await run_jobs(client, app)
    await client.enqueue("q", max_attempts=1)
    assert (await run_jobs(client, app, failures=True)).dead_letters == 1


async def test_what_is_scheduled_runs_when_the_clock_has_moved(client: Client, dsn: str) -> None:
    freeze_clock(dsn)
    await client.enqueue("mail", {"order": 1}, kind="confirm", run_at=await client.server_time() + timedelta(hours=1))
    assert (await run_jobs(client, shop(client))).claimed == 0
    advance_clock(dsn, timedelta(hours=1))
    assert (await run_jobs(client, shop(client))).done == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_clock_is_moved_by_a_client_too(client: Client, dsn: str, is_async: bool) -> None:
    when = datetime(2030, 1, 31, 23, 59, tzinfo=UTC)
    with SyncClient(dsn) as other:
        target = client if is_async else other
        with clock_at(target, when, frozen=True):
            advance_clock(target, timedelta(minutes=1))
            assert await client.server_time() == when + timedelta(minutes=1)
    assert (await client.server_time()).year != 2030


def test_what_has_no_clock_or_is_no_time_is_refused_by_name(dsn: str) -> None:
    wrong: list[tuple[str, Callable[[], object]]] = [
        ("target", lambda: advance_clock(3, timedelta(hours=1))),  # type: ignore[call-overload]
        ("by", lambda: advance_clock(dsn, 3600)),  # type: ignore[call-overload]
        ("when", lambda: freeze_clock(dsn, "2030-01-31")),  # type: ignore[call-overload]
    ]
    for field, call in wrong:
        with pytest.raises(InvalidArgument) as refused:
            call()
        assert refused.value.field == field


async def test_a_job_that_nobody_does_fails_the_test_and_signals_are_left_alone(client: Client) -> None:
    app = App()
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    @app.handler(queue="q", kind="known")
    async def known() -> None:
        seen.append(signal.getsignal(signal.SIGINT))

    await client.enqueue("q", kind="known")
    await client.enqueue("q", kind="mistyped")
    with pytest.raises(AssertionError, match="no handler for kind mistyped in queue q"):
        await run_jobs(client, app)
    assert seen == [before]


def test_a_client_that_waits_is_refused_by_name(dsn: str) -> None:
    app = App()
    app.handler(queue="q")(print_nothing)
    with SyncClient(dsn) as client, pytest.raises(InvalidArgument, match="asynchronous") as refused:
        asyncio.run(run_jobs(client, app))  # type: ignore[arg-type]
    assert refused.value.field == "client"


async def print_nothing() -> None: ...

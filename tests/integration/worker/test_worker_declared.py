"""How handlers are declared, and what is refused there instead of going wrong later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from sluicegate import App, Client, Context, InvalidArgument, SyncClient, ThreadContext, Worker
from tests.integration.worker.test_worker_handlers import done


async def yields_too() -> AsyncIterator[int]:
    yield 1


def declared(function: Any, **options: Any) -> None:
    App().handler(queue="q", **options)(function)


async def takes_many(*numbers: int) -> None: ...
async def takes_any(**fields: int) -> None: ...
async def takes_by_place(number: int, /) -> None: ...
async def takes_the_wrong_context(context: ThreadContext) -> None: ...
def takes_the_wrong_context_too(context: Context) -> None: ...
async def takes_the_unknown(number: Unknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821
async def takes_what_nobody_can_check(lock: asyncio.Lock) -> None: ...
async def takes_context_without_saying_so(context) -> None: ...  # type: ignore[no-untyped-def]
def takes_context_without_saying_so_in_a_thread(context=None) -> None: ...  # type: ignore[no-untyped-def]


def yields() -> Iterator[int]:
    yield 1


class Yielding:
    def __call__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    ("function", "options", "field"),
    [
        (takes_many, {}, "numbers"),
        (takes_any, {}, "fields"),
        (takes_by_place, {}, "number"),
        (takes_the_wrong_context, {}, "context"),
        (takes_the_wrong_context_too, {}, "context"),
        (takes_the_unknown, {}, "handler"),
        (takes_what_nobody_can_check, {}, "lock"),
        (takes_context_without_saying_so, {}, "context"),
        (takes_context_without_saying_so_in_a_thread, {}, "context"),
        (yields, {}, "handler"),
        (yields_too, {}, "handler"),
        (partial(yields), {}, "handler"),
        (Yielding(), {}, "handler"),
        ("print", {}, "handler"),
        (print, {"backoff": timedelta(seconds=3)}, "backoff"),
        (print, {"timeout": 0}, "timeout"),
        (print, {"timeout": -1}, "timeout"),
        (print, {"max_attempts": 0}, "max_attempts"),
        (print, {"backoff": 3}, "backoff"),
        (print, {"kind": "k" * 129}, "kind"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_where_it_is_declared(
    function: Any, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        declared(function, **options)
    assert refused.value.field == field
    assert refused.value.next_step


async def test_a_field_may_be_called_context_if_it_says_what_it_is(client: Client) -> None:
    app = App()

    @app.handler(queue="q")
    async def do(context: str) -> str:
        return context

    assert (await done(client, app, {"context": "of the review"})).job.result == "of the review"


async def test_a_handler_needs_no_settings_and_may_be_an_object(client: Client) -> None:
    app = App()

    @app.handler
    async def do(number: int) -> int:
        return number

    class Object:
        async def __call__(self, payload: int) -> int:
            return 2 * payload

    app.handler(queue="q", kind="object")(Object())
    app.handler(queue="q", kind="part")(partial(Object(), 3))
    assert do.job({"number": 1}).queue == "default"
    assert (await done(client, app, {"number": 1}, queue="default")).job.result == 1
    assert (await done(client, app, 2, kind="object")).job.result == 4
    assert (await done(client, app, None, kind="part")).job.result == 6


async def test_all_that_does_not_fit_is_told_at_once(client: Client) -> None:
    app = App()

    @app.handler(queue="q")
    async def do(number: int, when: datetime, path: str) -> None: ...

    found = await done(client, app, {"number": "three", "when": "soon", "colour": "red", "size": 1})
    error = found.job.error
    assert error.startswith(
        "Handler do does not take colour, size; it needs path, and the payload lacks it; it cannot take number: "
    )
    assert "; it cannot take when: " in error


@pytest.mark.parametrize("queues", [5, "mail", ["mail"], [("mail",)], {3: {}}, [([], {})]])
def test_queues_that_are_none_are_refused(queues: Any) -> None:
    with pytest.raises(InvalidArgument) as refused:
        App(queues)
    assert refused.value.field in ("queues", "queues[0]")
    assert refused.value.next_step


async def test_a_worker_is_made_of_a_client_and_an_app(client: Client, dsn: str) -> None:
    wrong: list[tuple[Any, Any, str]] = [
        (None, App(), "client"),
        (SyncClient(dsn), App(), "client"),
        (client, None, "app"),
    ]
    for first, second, field in wrong:
        with pytest.raises(InvalidArgument) as refused:
            Worker(first, second)
        assert refused.value.field == field
    app = App()
    app.handler(queue="q", kind="do")(lambda: None)
    with pytest.raises(InvalidArgument) as refused:
        Worker(client, app, on_event="print")  # type: ignore[arg-type]
    assert refused.value.field == "on_event"


async def test_two_handlers_for_one_kind_are_refused() -> None:
    app = App()

    @app.handler(queue="q", kind="do")
    async def do() -> None: ...

    with pytest.raises(InvalidArgument, match="two handlers") as refused:
        app.handler(queue="q", kind="do")(lambda: None)
    assert refused.value.field == "kind"

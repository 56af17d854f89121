"""Keeping a call whole when whoever awaits it is cancelled.

Breaking a query off would leave its connection in the middle of an answer, and a claim taken by nobody. So each call
runs in a task of its own. Cancelling the awaiting task cancels the call only while it still waits for a connection;
once it has been sent it is finished in the background, and what it brought is handed to ``abandoned``. A connection
that says nothing at all is not waited for so: the call is broken off after a while, and the connection closed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# How long an abandoned call may go on, in seconds: longer than any of ours waits for a lock.
_LAST_PATIENCE = 20.0


class AsyncCalls:
    """The calls of one client. They belong to the event loop that it was opened in."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        # Those that have been sent, and how long each may go on when nobody waits for it any more.
        self._sent: dict[asyncio.Task[Any], float | None] = {}

    async def run(
        self, call: Coroutine[Any, Any, T], abandoned: Callable[[T], Coroutine[Any, Any, object]] | None = None
    ) -> T:
        """The answer of ``call``. If this is cancelled after sending, ``abandoned`` gets the answer instead."""
        task = self._start(call)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            if task not in self._sent:
                task.cancel()
            self._start(_settle(task, abandoned, self._sent.get(task)))
            raise
        return task.result()

    def sent(self, patience: float | None = _LAST_PATIENCE) -> None:
        """The running call has its connection: from here on it is not cancelled, but for one that takes very long."""
        task = asyncio.current_task()
        if task is not None and task in self._tasks:
            self._sent[task] = patience

    async def drain(self) -> None:
        """Wait until every call, and all that follows from abandoned ones, has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._sent.pop(task, None)


async def _settle(
    task: asyncio.Task[T], abandoned: Callable[[T], Coroutine[Any, Any, object]] | None, patience: float | None
) -> None:
    """See an abandoned call to its end. Nobody is left to tell of a failure; the lease settles what remains."""
    _, waiting = await asyncio.wait((task,), timeout=patience)
    if waiting:
        # The driver asks the server to end the query, and closes the connection when that is not answered either.
        task.cancel()
        await asyncio.wait((task,))
    if task.cancelled() or task.exception() is not None or abandoned is None:
        return
    await asyncio.gather(abandoned(task.result()), return_exceptions=True)


class SyncCalls:
    """The same for threads, where a call cannot be cancelled: what has been called has already been answered."""

    def run(self, answer: T, abandoned: Callable[[T], object] | None = None) -> T:  # noqa: ARG002  # as AsyncCalls
        return answer

    def sent(self, patience: float | None = _LAST_PATIENCE) -> None:
        """Nothing to note."""

    def drain(self) -> None:
        """Nothing to wait for."""


async def async_blocking(function: Callable[[], T]) -> T:
    """The result of ``function``, which blocks, without blocking the event loop."""
    return await asyncio.to_thread(function)


def sync_blocking(function: Callable[[], T]) -> T:
    """The result of ``function``."""
    return function()


async def async_pause(seconds: float) -> None:
    """Let ``seconds`` pass."""
    await asyncio.sleep(seconds)


def sync_pause(seconds: float) -> None:
    """Let ``seconds`` pass."""
    time.sleep(seconds)

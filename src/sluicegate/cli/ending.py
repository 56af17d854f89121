"""The end of a command that runs the code of others, who may leave tasks and threads that never end."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

# How long what was left gets to end after it was told to, in seconds.
_PATIENCE = 1.0


class StillRunning(Exception):
    """The command has ended, as ``error`` says or well, and something of others has not: the process must not wait for it."""

    def __init__(self, what: str, error: BaseException | None) -> None:
        super().__init__(what)
        self.error = error


def run_and_leave(main: Coroutine[Any, Any, T]) -> T:
    """As ``asyncio.run``, which would wait for ever: tasks and threads that do not end a moment later raise StillRunning."""
    import asyncio

    runner = asyncio.Runner()
    error: BaseException | None = None
    try:
        return _run(runner, main)
    except BaseException as raised:
        error = raised
        raise
    finally:
        if what := _left(runner.get_loop()):
            raise StillRunning(what, error)


def _run(runner: asyncio.Runner, main: Coroutine[Any, Any, T]) -> T:
    """As ``runner.run``, and on when something of others calls ``sys.exit``, which leaves an event loop by force."""
    import asyncio

    task = runner.get_loop().create_task(main)

    async def over() -> None:
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
            raise

    while not task.done():
        try:
            runner.run(over())
        except SystemExit as error:
            if not task.done():
                sys.stderr.write(
                    f"sluicegate: A task or callback of a handler called sys.exit({error.code!r}). The worker goes on.\n"
                )
    return task.result()


def _left(loop: asyncio.AbstractEventLoop) -> str:
    """What goes on for longer than it may; empty when all has ended, and the loop is closed."""
    import asyncio

    with contextlib.suppress(KeyboardInterrupt):
        loop.run_until_complete(_cancelled())
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()  # which lets the threads of its pool end, and waits for none
    until = time.monotonic() + _PATIENCE
    threads = [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    threads = [thread for thread in threads if thread.is_alive()]
    named = [f"task {task.get_coro().__qualname__}" for task in tasks]  # type: ignore[union-attr]
    return ", ".join(named + [f"thread {thread.name}" for thread in threads])


async def _cancelled() -> None:
    import asyncio

    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_PATIENCE)

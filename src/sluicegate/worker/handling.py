"""One attempt of one job by a handler: from its arguments to the finish that is to be reported."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sluicegate.client import Client
from sluicegate.errors import InvalidArgument
from sluicegate.model import Claim, FinishItem
from sluicegate.ops import requests
from sluicegate.worker.context import Context, ThreadContext
from sluicegate.worker.handlers import App, Handler
from sluicegate.worker.leases import HeldLease, ServerClock
from sluicegate.worker.outcomes import finish, without_handler
from sluicegate.worker.verdict import Interruption

# What is not over so many seconds after it was cancelled, since its worker ends, is left to itself.
_LAST_PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all attempts of a worker share."""

    app: App
    client: Client
    clock: ServerClock
    started: Callable[[Claim], object]


@dataclass(slots=True)
class _Result:
    """What a handler came to. Held apart from the task, so that nothing it raises passes through the event loop."""

    value: object = None
    error: BaseException | None = None
    began: bool = True


class Handling:
    """An attempt as it runs."""

    trouble: str | None = None
    exit_code: int | None = None

    def __init__(self, shop: Workshop, claim: Claim, *, sent_at: float, length: float) -> None:
        self.claim = claim
        self.lease = HeldLease(
            claim,
            length,
            renewed_at=sent_at,
            ends_at=sent_at + length,
            on_lost=self._lost,
            on_cancelled=lambda: self.interrupt(Interruption.CANCELLED, 0),
            on_renewed=lambda: None,
        )
        self.why_lost = "The lease ran out while the worker stood still."
        self.seconds: float | None = None
        self._shop = shop
        self._task: asyncio.Task[_Result] | None = None
        self._context: Context | ThreadContext | None = None
        self._interruption: Interruption | None = None
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def interrupt(self, why: Interruption, grace: float) -> None:
        """Cancel the handler: a task where it waits, a thread when it looks at its context.

        Neither can be killed. Of a worker that ends, what has not listened after ``grace`` seconds, and a moment more, is
        left behind: its job is neither finished nor given back, since it may still be done; its lease decides.
        """
        if self._interruption is None or (why.overrides and why.value > self._interruption.value):
            self._interruption = why
        if self._context is not None:
            self._context.cancel()
        if self._task is not None and isinstance(self._context, Context):
            self._task.cancel()
        if why is Interruption.STOPPED:
            asyncio.get_running_loop().call_later(grace + _LAST_PATIENCE, self._leave)

    async def run(self) -> FinishItem | None:
        """Do the job; None if its lease was lost, so that there is nothing to report."""
        if self._interruption is not None:
            return self._ended(_Result(), started=False)
        handler = self._shop.app.find(self.claim.job.queue, self.claim.job.kind)
        if handler is None:
            return without_handler(self.claim, self._shop.clock.now())
        try:
            arguments = handler.arguments(self.claim.job.payload)
        except BaseException as error:  # noqa: BLE001 - what checks the arguments is the user's own as well
            return self._finished(error)
        started_at = time.monotonic()
        self._shop.started(self.claim)
        result = await self._result(handler, arguments)
        self.seconds = time.monotonic() - started_at
        if result is not None and not result.began:
            self.trouble = f"No thread could be started: {result.error}"
            return FinishItem.released(self.claim, reason=self.trouble, started=False)
        return None if result is None else self._ended(result, timeout=handler.timeout)

    async def _result(self, handler: Handler, arguments: dict[str, object]) -> _Result | None:
        """What it came to; None if it was left behind."""
        loop = asyncio.get_running_loop()
        if handler.is_async:
            self._context = Context(self._shop.client, self.claim)
        else:
            self._context = ThreadContext(self._shop.client, self.claim, loop)
        if handler.wants_context is not None:
            arguments = {**arguments, handler.wants_context: self._context}
        task = self._task = asyncio.create_task((_caught if handler.is_async else _in_thread)(handler, arguments))
        limit = None
        if handler.timeout is not None:
            limit = loop.call_later(handler.timeout, self.interrupt, Interruption.TIMED_OUT, 0)
        try:
            # Cancelled or not, a task or thread that still runs still has its slot.
            await asyncio.wait((task, self._left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if limit is not None:
                limit.cancel()
        if not task.done():
            self.why_lost = "Its handler did not end when the worker was stopped; the job is free when its lease ends."
            return None
        return _Result(error=asyncio.CancelledError()) if task.cancelled() else task.result()

    def _ended(self, result: _Result, *, started: bool = True, timeout: float | None = None) -> FinishItem | None:
        error = result.error
        match self._interruption:
            case Interruption.LOST:
                return None
            case Interruption.CANCELLED if error is not None or not started:
                return FinishItem.failed(self.claim, "The job was cancelled, and its handler ended.")
            case Interruption.TIMED_OUT if error is not None:
                return FinishItem.failed(
                    self.claim, f"The handler ran longer than its timeout of {timeout:g} s and was cancelled."
                )
            case Interruption.STOPPED if isinstance(error, asyncio.CancelledError) or not started:
                return FinishItem.released(
                    self.claim, reason="The worker was stopped and ended the handler." if started else "The worker was stopped.",
                    started=started,
                )  # fmt: skip
        if error is not None:
            return self._finished(error)
        return self._completed(result.value)

    def _finished(self, error: BaseException) -> FinishItem:
        """What a handler raised, if it can be sent: one that cannot would keep all that are sent with it."""
        try:
            item = finish(self.claim, error, self._shop.clock.now())
            requests.check_finish(item)
        except Exception as unusable:  # noqa: BLE001 - to ask an error what it says may raise another one
            return FinishItem.failed(
                self.claim, f"The handler raised {type(error).__name__}, and it cannot be recorded: {_why(unusable)}"
            )
        return item

    def _completed(self, value: object) -> FinishItem:
        item = FinishItem.completed(self.claim, value)
        if value is not None:
            try:
                requests.check_finish(item)
            except Exception as unusable:  # noqa: BLE001 - as above
                return FinishItem.failed(
                    self.claim, f"The job was done, and its result cannot be kept: {_why(unusable)}", retry=False
                )
        return item

    def _lost(self, message: str) -> None:
        self.why_lost = message
        self.interrupt(Interruption.LOST, 0)

    def _leave(self) -> None:
        if not self._left.done():
            self._left.set_result(None)


def _why(unusable: Exception) -> str:
    return str(unusable) if isinstance(unusable, InvalidArgument) else f"{type(unusable).__name__}."


async def _caught(handler: Handler, arguments: dict[str, object]) -> _Result:
    try:
        return _Result(await handler.function(**arguments))
    except BaseException as error:  # noqa: BLE001 - SystemExit of a handler must not end the worker
        return _Result(error=error)


async def _in_thread(handler: Handler, arguments: dict[str, object]) -> _Result:
    """As ``_caught``, in a thread of its own, which does not keep a process alive that ends."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()

    def tell(result: _Result) -> None:
        if not done.done():
            done.set_result(result)

    def work() -> None:
        result = _Result(error=RuntimeError("The thread ended without a result."))
        try:
            result = _called(handler, arguments)
        finally:  # whatever ends the thread, and wherever
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
                loop.call_soon_threadsafe(tell, result)

    context = contextvars.copy_context()
    name = f"{handler.queue}/{handler.kind}"
    try:
        threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()
    except RuntimeError as error:  # as many as this machine allows
        return _Result(error=error, began=False)
    return await done


def _called(handler: Handler, arguments: dict[str, object]) -> _Result:
    try:
        return _Result(handler.function(**arguments))
    except BaseException as error:  # noqa: BLE001 - as above
        return _Result(error=error)

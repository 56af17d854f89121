"""One attempt of one job by a handler: from its arguments to the finish that is to be reported."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sluicegate.client import Client
from sluicegate.errors import InvalidArgument
from sluicegate.model import Claim, FinishItem
from sluicegate.ops import requests
from sluicegate.ops.json_text import Encoded, encode
from sluicegate.worker import forks
from sluicegate.worker.context import Context, ThreadContext
from sluicegate.worker.handlers import App, Handler
from sluicegate.worker.leases import HeldLease, ServerClock
from sluicegate.worker.outcomes import finish, said, unfinished, without_handler
from sluicegate.worker.verdict import Interruption


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Workshop:
    """What all attempts of a worker share. Made in its event loop."""

    app: App
    client: Client
    clock: ServerClock
    started: Callable[[Claim], object]

    def __post_init__(self) -> None:
        forks.end_children(self)


class Handling:
    """An attempt as it runs, in the task of ``run``, which is the handler's own if that is async."""

    __slots__ = (
        "_began", "_handler", "_interruption", "_shop", "_task", "claim", "exit_code", "lease", "seconds", "trouble", "why_lost",
    )  # fmt: skip

    def __init__(self, shop: Workshop, claim: Claim, *, sent_at: float, length: float) -> None:
        self.claim = claim
        self.lease = HeldLease(
            claim,
            length,
            renewed_at=sent_at,
            ends_at=sent_at + length,
            holder=self,
        )
        self.trouble: str | None = None
        self.exit_code: int | None = None
        self.seconds: float | None = None
        self.why_lost = "The lease ran out while the worker stood still."
        self._shop = shop
        self._handler: Handler | None = None
        self._began = False
        # That of an async handler, for as long as it runs.
        self._task: asyncio.Task[object] | None = None
        self._interruption: Interruption | None = None

    def interrupt(self, why: Interruption, grace: float) -> None:  # noqa: ARG002 - a handler cannot be killed
        """Cancel the handler: a task where it waits, a thread when it looks at its context. Neither can be killed."""
        if self._interruption is None or (why.overrides and why.value > self._interruption.value):
            self._interruption = why
        if self._task is not None:
            self._task.cancel()

    def leave(self) -> str | None:
        """Its job is neither finished nor given back, since it may still be done: its lease decides."""
        ends_at = self._shop.clock.at(self.lease.ends_at)
        return (
            f"{self._title} did not end when the worker was stopped. Another worker may run job {self.claim.job_id} when "
            f"its lease ends, at {ends_at.isoformat(timespec='seconds')}."
        )

    async def run(self) -> FinishItem | None:
        """Do the job; None if its lease was lost, so that there is nothing to report."""
        self._began = True
        if self._interruption is not None:
            return self._ended(asyncio.CancelledError(), started=False)
        job = self.claim.job
        handler = self._handler = self._shop.app.find(job.queue, job.kind)
        if handler is None:
            known = [one.kind for one in self._shop.app.handlers if one.queue == job.queue]
            return without_handler(self.claim, self._shop.clock.now(), known)
        try:
            arguments = handler.arguments(job.payload)
        except BaseException as error:  # noqa: BLE001 - what checks the arguments is the user's own as well
            return self._raised(error)
        loop = asyncio.get_running_loop()
        if handler.wants_context is not None:
            arguments[handler.wants_context] = (
                Context(self._shop.client, self.claim, self._is_over)
                if handler.is_async
                else ThreadContext(self._shop.client, self.claim, self._is_over, loop)
            )
        limit = None
        if handler.timeout is not None:
            limit = loop.call_later(handler.timeout, self.interrupt, Interruption.TIMED_OUT, 0)
        started_at = time.monotonic()
        self._shop.started(self.claim)
        try:
            if handler.is_async:
                value, raised = await self._awaited(handler, arguments)
            else:
                value, raised = await _in_thread(handler, arguments)
        except _NoThread as none:
            self.trouble = f"No thread could be started: {none}"
            return FinishItem.released(self.claim, reason=self.trouble, started=False)
        finally:
            if limit is not None:
                limit.cancel()
            self.seconds = time.monotonic() - started_at
        return self._ended(raised, value)

    def broken_off(self) -> FinishItem | None:
        """The task of ``run`` was cancelled, and not by us: by somebody who cancels whatever tasks there are."""
        if not self._began:
            reason = "The task that was to do it was cancelled before it began."
            return FinishItem.released(self.claim, reason=reason, started=False)
        if self._handler is None or self._handler.is_async:
            return self._ended(asyncio.CancelledError())
        # Its thread may go on: what becomes of the job is its lease's to say.
        self.interrupt(Interruption.STOPPED, 0)
        self.why_lost = "The task that watched over its thread was cancelled."
        return None

    async def _awaited(self, handler: Handler, arguments: dict[str, object]) -> tuple[object, BaseException | None]:
        """What an async handler came to. Nothing that it raises, not even SystemExit, passes through the event loop."""
        self._task = asyncio.current_task()
        try:
            return await handler.function(**arguments), None
        except BaseException as error:  # noqa: BLE001 - as said
            return None, error
        finally:
            self._task = None

    def _ended(self, error: BaseException | None, value: object = None, *, started: bool = True) -> FinishItem | None:
        match self._interruption:
            case Interruption.LOST:
                return None
            case Interruption.CANCELLED if error is not None:
                ended = "its handler ended" if started else "its handler never began"
                return FinishItem.failed(self.claim, f"The job was cancelled, and {ended}.")
            case Interruption.TIMED_OUT if error is not None and self._handler is not None:
                return FinishItem.failed(
                    self.claim,
                    f"{self._title} ran longer than its timeout of {self._handler.timeout:g} s and was cancelled.",
                )
            case Interruption.STOPPED if isinstance(error, asyncio.CancelledError):
                return FinishItem.released(
                    self.claim, reason="The worker was stopped and ended the handler." if started else "The worker was stopped.",
                    started=started,
                )  # fmt: skip
        return self._completed(value) if error is None else self._raised(error)

    def _raised(self, error: BaseException) -> FinishItem:
        """What a handler raised, if it can be sent: one that cannot would keep all that are sent with it."""
        try:
            item = finish(self.claim, error, self._shop.clock.now(), self._title)
            requests.check_finish(item)
        except BaseException as unusable:  # noqa: BLE001 - to ask an error what it says may raise anything
            why = said(unusable) if isinstance(unusable, InvalidArgument) else f"{type(unusable).__name__}."
            return FinishItem.failed(
                self.claim, f"{self._title} raised {type(error).__name__}, and it cannot be recorded: {why}"
            )
        return item

    def _completed(self, value: object) -> FinishItem:
        if value is None:
            return FinishItem.completed(self.claim)
        try:
            return FinishItem.completed(self.claim, Encoded(encode(value, "result", forgiving=True)))
        except BaseException as unusable:  # noqa: BLE001 - what is asked what it is may raise anything
            if why := unfinished(value):
                return FinishItem.failed(self.claim, f"{self._title} {why}")
            why = said(unusable) if isinstance(unusable, InvalidArgument) else f"{type(unusable).__name__}."
            return FinishItem.failed(
                self.claim, f"{self._title} has done the job, and its result cannot be kept: {why}", retry=False
            )

    @property
    def _title(self) -> str:
        return "The handler" if self._handler is None else f"Handler {self._handler.name}"

    def _is_over(self) -> bool:
        return self._interruption is not None

    def lease_lost(self, why: str) -> None:
        self.why_lost = why
        self.interrupt(Interruption.LOST, 0)

    def job_cancelled(self) -> None:
        self.interrupt(Interruption.CANCELLED, 0)

    def lease_renewed(self) -> None:
        """It goes on as it did."""


class _NoThread(Exception):
    """This machine allows no more threads."""


async def _in_thread(handler: Handler, arguments: dict[str, object]) -> tuple[object, BaseException | None]:
    """What a handler came to in a thread of its own, which does not keep a process alive that ends."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()
    process = os.getpid()

    def tell(result: tuple[object, BaseException | None]) -> None:
        if not done.done():
            done.set_result(result)

    def work() -> None:
        result: tuple[object, BaseException | None] = None, RuntimeError("The thread ended without a result.")
        try:
            result = _called(handler, arguments)
        finally:  # whatever ends the thread, and wherever
            if os.getpid() != process:
                forks.end()
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
                loop.call_soon_threadsafe(tell, result)

    context = contextvars.copy_context()
    name = f"{handler.queue}/{handler.kind}"
    try:
        threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()
    except RuntimeError as error:
        raise _NoThread(str(error)) from None
    return await done


def _called(handler: Handler, arguments: dict[str, object]) -> tuple[object, BaseException | None]:
    try:
        return handler.function(**arguments), None
    except BaseException as error:  # noqa: BLE001 - it is told like any other
        return None, error

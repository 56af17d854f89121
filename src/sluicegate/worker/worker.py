"""``Worker``: runs the handlers of an app for the jobs of its queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import TracebackType
from typing import Self

from sluicegate.client import Client
from sluicegate.errors import InvalidArgument, NoQueues, Unavailable
from sluicegate.model import Claim, Deferral, Demand
from sluicegate.model.health import WorkerHealth
from sluicegate.ops import validate
from sluicegate.ops.requests import MAX_LEASE_SECONDS
from sluicegate.worker.crew import Crew
from sluicegate.worker.events import Tally, WorkerEvent, WorkerReport
from sluicegate.worker.handlers import App
from sluicegate.worker.handling import Handling, Workshop
from sluicegate.worker.permits import Permit
from sluicegate.worker.run import Run
from sluicegate.worker.sharing import SharedSlots
from sluicegate.worker.stopping import StopRequest, stopped_by_signals
from sluicegate.worker.terms import MAX_SECONDS

# For claims with their finishes, heartbeats and housekeeping, which never wait for what handlers do with theirs.
_CONNECTIONS = 3
_A = {Client: "a Client (the asynchronous one)", App: "an App"}
_LONGEST_POLL = 3600.0
_ANEW = "Make a new Worker, unless it was meant to stop."
_SHORTEST_POLL = 0.01


class Worker:
    """Claims jobs of the queues of ``app`` and does them with its handlers, as many at once as their settings allow.

        async with Worker(client, app) as worker:
            await worker.finished()

    Or ``await worker.run()``, which also stops at SIGTERM, SIGINT and SIGHUP. ``lease_seconds`` (1 to 86,400; None: the
    endpoint's) is kept by heartbeats while a handler runs. When it is told to stop, it claims nothing more; handlers may
    go on for ``grace`` seconds (0 to a year), the rest is cancelled and given back. ``poll`` (0.01 to 3,600) is the
    longest it waits, in seconds, before it looks for jobs that nobody told of. With ``drain`` it ends when nothing is left
    that could be started. ``on_event`` is called with each WorkerEvent; what it raises ends the worker.

    Raises a named InvalidWorker for settings that do not fit together, before anything is claimed.
    """

    def __init__(
        self,
        client: Client,
        app: App,
        *,
        lease_seconds: int | None = None,
        grace: float = 30.0,
        poll: float = 1.0,
        drain: bool = False,
        on_event: Callable[[WorkerEvent], object] | None = None,
    ) -> None:
        for given, field, kind in ((client, "client", Client), (app, "app", App)):
            if not isinstance(given, kind):
                validate.refuse(field, f"is {validate.shown(given)}, not {_A[kind]}", "Write Worker(client, app).")
        self._capacity = app.capacity()
        for queue in self._capacity.queues:
            if not any(handler.queue == queue for handler in app.handlers):
                raise NoQueues(
                    f"Queue {queue} has settings and no handler, so its jobs would be claimed in vain.",
                    field=queue,
                    next_step="Declare a handler for it, or take its settings away.",
                )
        if on_event is not None and not callable(on_event):
            validate.refuse(
                "on_event", f"is {validate.shown(on_event)}, not callable", "Pass a function of one WorkerEvent."
            )
        if lease_seconds is not None:
            validate.whole(lease_seconds, "lease_seconds", 1, MAX_LEASE_SECONDS)
        if validate.seconds(poll, "poll", _LONGEST_POLL) < _SHORTEST_POLL:
            raise InvalidArgument(
                f"poll is {poll:g} s.",
                field="poll",
                next_step=f"Use a second, or a part of one, at least {_SHORTEST_POLL:g}.",
            )
        self._client = client
        self._app = app
        self._lease_seconds = lease_seconds
        self._grace = validate.seconds(grace, "grace", MAX_SECONDS)
        self._poll = poll
        self._drain = validate.flag(drain, "drain")
        self._on_event = on_event
        self._state = "new"
        self._starting = asyncio.Lock()
        self._stop = StopRequest()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._run: Run | None = None
        self._slots: SharedSlots | None = None
        self._over: asyncio.Task[None] | None = None
        self._began_at = 0.0
        self._reached = asyncio.Event()
        self._fault: str | None = None

    async def start(self) -> None:
        """Begin to claim. Starting again does nothing; one that has ended, or was told to stop before, does not begin.

        Raises InvalidArgument in another event loop than the first, Unavailable if the client is not open.
        """
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise InvalidArgument(
                "The worker was started in another event loop.",
                field="worker",
                next_step="Make a new Worker for each asyncio.run.",
            )
        async with self._starting:
            if self._over is not None:
                return
            if self._stop.asked.is_set():
                self._state = "stopped"
                return
            own = await self._client.beside(max_size=_CONNECTIONS).open()
            self._loop = loop
            self._began_at = time.monotonic()
            self._state = "started"
            self._over = asyncio.create_task(self._live(own, self._made(own)))

    def _made(self, own: Client) -> Run:
        run = self._run = Run(
            own, lease_seconds=self._lease_seconds, grace=self._grace, on_event=self._on_event, stop=self._stop
        )
        shop = Workshop(self._app, self._client, run.clock, run.tally.started)
        run.staff(
            lambda claim, sent_at, length: Handling(shop, claim, sent_at=sent_at, length=length),
            lambda crew: self._share(own, run, crew),
            tuple(self._capacity.queues),
        )
        return run

    def _share(self, own: Client, run: Run, crew: Crew) -> SharedSlots:
        def begin(claim: Claim, permit: Permit, sent_at: float, length: float) -> None:
            crew.start(claim, sent_at=sent_at, length=length, holding=permit)

        def seen(demand: Demand) -> None:
            self._reached.set()
            run.tally.database_back()
            _tell(run.tally, demand, idle=crew.running == 0)

        self._slots = SharedSlots(
            own,
            self._capacity,
            begin,
            lease_seconds=self._lease_seconds,
            poll=self._poll,
            drain=self._drain,
            woken=run.wake,
            seen=seen,
            rest=lambda: crew.rest,
            hears=run.hears,
        )
        return self._slots

    async def _live(self, own: Client, run: Run) -> None:
        try:
            async with own:
                try:
                    await run.until_over()
                finally:
                    self._state = "stopping"
                    await run.close()
                    run.abandon()
            run.raise_faults()
        except Exception as error:
            self._fault = str(error)
            raise
        finally:
            self._state = "stopped"

    async def started(self) -> None:
        """Wait until it is ready: the database has answered. Raises what ended it before that, Unavailable if it was stopped,
        InvalidArgument before ``start``."""
        if self._over is None:
            raise InvalidArgument(
                "The worker has not been started.", field="worker", next_step="Call `await worker.start()` first."
            )
        reached = asyncio.ensure_future(self._reached.wait())
        over = asyncio.ensure_future(self.finished())
        try:
            await asyncio.wait((reached, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reached, over):
                task.cancel()
        if not self._reached.is_set():
            over.result()
            raise Unavailable("The worker ended before the database had answered it.", retriable=False, next_step=_ANEW)

    def ask_to_stop(self, reason: str = "it was asked to") -> None:
        """Claim nothing more; the second time, cancel what runs at once. Does not wait. Before ``start``: never begin."""
        self._stop.insist(reason)

    async def stop(self) -> WorkerReport:
        """Stop softly and wait for the end. Stopping twice is fine. Raises what made it impossible to go on."""
        if not self._stop.asked.is_set():
            self.ask_to_stop()
        return await self.finished()

    async def finished(self) -> WorkerReport:
        """Wait for the end: drained, stopped or broken. Raises what made it impossible to go on."""
        if self._over is None or self._run is None:
            return WorkerReport()
        await asyncio.shield(self._over)
        return self._run.tally.report(time.monotonic() - self._began_at)

    async def run(self, *, signals: bool = True) -> WorkerReport:
        """Start, and run until it is drained or a signal stops it. Cancelled, it ends at once, and what runs with it.

        ``signals=False`` leaves the signals to whoever has them.
        """
        with stopped_by_signals(self._stop) if signals else nullcontext():
            try:
                await self.start()
                return await self.finished()
            except asyncio.CancelledError:
                await self._end_at_once()
                raise

    async def _end_at_once(self) -> None:
        """Nobody waits any longer: what runs is ended before the client is closed."""
        for _ in range(2):
            self.ask_to_stop("it was cancelled")
        if self._over is not None:
            await asyncio.wait((self._over,))

    @property
    def left_behind(self) -> tuple[str, ...]:
        """Of each handler that still runs although the worker has ended: which it is, and when its job is free again."""
        return () if self._run is None else self._run.crew.left

    def health(self) -> WorkerHealth:
        """How it is at this moment. ``ready``: it has started, is not stopping, and the database answers."""
        away = None if self._run is None else self._run.tally.away
        state = "stopping" if self._stop.asked.is_set() and self._state == "started" else self._state
        return WorkerHealth(
            worker=self._client.worker,
            live=state in ("started", "stopping"),
            ready=state == "started" and away is None and self._reached.is_set(),
            state=state,
            global_max_workers=self._capacity.pool,
            running=0 if self._slots is None else self._slots.running,
            queues=() if self._slots is None else tuple(self._slots.health()),
            fault=self._fault or away,
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop()
        except asyncio.CancelledError:
            await self._end_at_once()
            raise


def _tell(tally: Tally, demand: Demand, *, idle: bool) -> None:
    """What the queues have: which are closed, and whether there is anything to do at all."""
    closed = [
        Deferral(
            queue=entry.queue,
            reason=entry.reason,
            pending=entry.waiting,
            pending_exact=entry.waiting_exact,
            next_eligible_at=entry.next_eligible_at,
            exact=entry.exact,
            all=entry.all,
        )
        for entry in demand.queues
        if entry.reason is not None
    ]
    tally.opened({entry.queue for entry in demand.queues if entry.reason is None})
    tally.deferred(closed)
    if idle and all(entry.waiting == 0 for entry in demand.queues):
        tally.waiting()

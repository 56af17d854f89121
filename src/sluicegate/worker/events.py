"""What a worker, ``exec`` or one with handlers, tells while it runs and at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from sluicegate.errors import SluicegateError
from sluicegate.model import Claim, Deferral, Finish, FinishItem

EventKind = Literal[
    "started",  # the handler or command of a job runs
    "done",
    "failed",  # the attempt failed; the job runs again later
    "dead_letter",  # the attempt failed and was the last one
    "released",  # the job went back unfinished
    "cancelled",
    "lost",  # somebody else has the job now, or its end could not be recorded
    "waiting",  # there is nothing to do; told once, the first time
    "deferred",  # a queue is closed now: why and until when; told when that begins and when it changes
    "database_away",
    "database_back",
    "housekeeping",  # reaping or pruning was refused; told once for each kind of error
    "stopping",
]


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """Something that happened. ``claim`` and ``seconds`` (how long the job ran) are None where no job is meant.

    ``message`` is for people: the error, the reason of a release, what is wrong with the database. ``deferral`` is the
    closed queue, ``exit_code`` what the command exited with, if it ran and did so by itself.
    """

    kind: EventKind
    claim: Claim | None = None
    message: str | None = None
    seconds: float | None = None
    deferral: Deferral | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a run did. Every claim ends in one of ``done``, ``failed``, ``cancelled``, ``released`` and ``lost``.

    ``failed`` counts attempts, ``dead_letters`` those of them that were their job's last. ``lost`` are attempts whose end
    was not recorded, because the lease or the database was gone. ``seconds`` is how long the run took.
    """

    claimed: int = 0
    done: int = 0
    failed: int = 0
    dead_letters: int = 0
    cancelled: int = 0
    released: int = 0
    lost: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Tally:
    """Counts what happens and passes it on to ``on_event``. ``away`` says why the database does not answer, None if it does.

    What ``on_event`` raises must not leave a job half done: it is kept as ``fault``, and ``stop`` is called.
    """

    def __init__(self, on_event: Callable[[WorkerEvent], object] | None, stop: Callable[[], object]) -> None:
        self.fault: Exception | None = None
        self._on_event = on_event
        self._stop = stop
        self._counts = dict.fromkeys(("claimed", "done", "failed", "dead_letters", "cancelled", "released", "lost"), 0)
        self.away: str | None = None
        self._refused: set[str] = set()
        self._deferred: dict[str, tuple[str, datetime | None]] = {}
        self._waiting = False

    def claimed(self, number: int) -> None:
        self._counts["claimed"] += number

    def started(self, claim: Claim) -> None:
        if self._on_event is not None:
            self._tell(WorkerEvent("started", claim))

    def finished(
        self, claim: Claim, item: FinishItem, answer: Finish, seconds: float | None, exit_code: int | None = None
    ) -> None:
        """The database has recorded the end of an attempt."""
        kind: EventKind
        if answer.state == "cancelled" and item.outcome != "completed":
            kind = "cancelled"
        elif item.outcome == "completed":
            kind = "done"
        else:
            kind = "failed" if item.outcome == "failed" else "released"
        self._counts[kind] += 1
        if answer.dead_letter:
            self._counts["dead_letters"] += 1
            kind = "dead_letter"
        if self._on_event is not None:
            self._tell(WorkerEvent(kind, claim, item.error or item.reason, seconds, exit_code=exit_code))

    def lost(self, claim: Claim, message: str, seconds: float | None = None) -> None:
        self._counts["lost"] += 1
        self._tell(WorkerEvent("lost", claim, message, seconds))

    def deferred(self, deferrals: Iterable[Deferral]) -> None:
        """Told when a queue closes and when its reason or time changes; a time that is not sure moves with every lease."""
        for entry in deferrals:
            key = (entry.reason, entry.next_eligible_at if entry.exact else None)
            if self._deferred.get(entry.queue) != key:
                self._deferred[entry.queue] = key
                self._tell(WorkerEvent("deferred", deferral=entry))

    def opened(self, queues: Iterable[str]) -> None:
        """These queues are open: what closes them next is told again, but not a full queue, which comes and goes."""
        for queue in queues:
            if self._deferred.get(queue, ("in_flight_full", None))[0] != "in_flight_full":
                del self._deferred[queue]

    def waiting(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._tell(WorkerEvent("waiting"))

    def database_away(self, error: Exception) -> None:
        if self.away is None:
            self.away = str(error)
            self._tell(WorkerEvent("database_away", message=str(error)))

    def database_back(self) -> None:
        if self.away is not None:
            self.away = None
            self._tell(WorkerEvent("database_back"))

    def housekeeping_refused(self, error: SluicegateError) -> None:
        """Told once for each kind of error, however often it comes."""
        if error.code not in self._refused:
            self._refused.add(error.code)
            self._tell(WorkerEvent("housekeeping", message=str(error)))

    def stopping(self, message: str) -> None:
        self._tell(WorkerEvent("stopping", message=message))

    def report(self, seconds: float) -> WorkerReport:
        return WorkerReport(**self._counts, seconds=seconds)

    def _tell(self, event: WorkerEvent) -> None:
        if self._on_event is None or self.fault is not None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - it is the caller's, and raised again at the end of the run
            self.fault = error
            self._stop()

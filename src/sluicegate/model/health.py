"""How a worker is, for people and probes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sluicegate.model._record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class HardReserved(Record):
    """The queue has ``max_workers`` slots of its own."""

    max_workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted(Record):
    """The queue shares a pool. ``overflow_held``: the slots it holds above its floor ``min_workers``."""

    min_workers: int
    weight: int
    max_workers: int | None
    overflow_held: int


QueueCapacity = HardReserved | Weighted


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHealth(Record):
    """One queue of a worker.

    ``demand`` is how many slots it could use, with those it holds; ``share`` what it deserves of the pool now;
    ``available`` how many more it could get. ``rate_per_second`` is a limit of this process, not of the fleet.
    ``waits_for`` says why jobs that wait are not started: a reason for which the queue is closed, ``rate``, ``pool``,
    ``cap``, or None if nothing waits.
    """

    queue: str
    capacity: QueueCapacity
    running: int
    available: int
    demand: int
    share: float
    rate_per_second: float | None
    last_claim_at: datetime | None
    waits_for: str | None

    def to_dict(self) -> dict[str, Any]:
        mode = "hard_reserved" if isinstance(self.capacity, HardReserved) else "weighted"
        return {**Record.to_dict(self), "capacity": {"mode": mode, **self.capacity.to_dict()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHealth(Record):
    """A worker as a whole.

    ``live``: its event loop answers. ``ready``: it has started, is not stopping, and the database answered lately.
    ``global_max_workers`` is None when each queue has slots of its own.
    """

    worker: str | None
    live: bool
    ready: bool
    state: str
    global_max_workers: int | None
    running: int
    queues: tuple[QueueHealth, ...]
    fault: str | None

"""Queues as reports show them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sluicegate.model._record import Record


@dataclass(frozen=True, slots=True)
class QueueCounts(Record):
    """How many jobs of a queue are in which state.

    ``due`` counts the scheduled jobs whose time has come, ``lapsed`` the claims whose lease has ended. The live
    states are exact; ``done``, ``failed`` and ``cancelled`` may be counted up to a bound.
    """

    queue: str
    scheduled: int
    due: int
    pending: int
    claimed: int
    lapsed: int
    done: int
    failed: int
    cancelled: int
    oldest_pending_at: datetime | None


@dataclass(frozen=True, slots=True)
class QueueStats(Record):
    """Every queue of a scope at ``server_time``."""

    queues: tuple[QueueCounts, ...]
    server_time: datetime

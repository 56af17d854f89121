"""Queues as reports show them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sluicegate.model._record import Record


@dataclass(frozen=True, slots=True)
class QueueCounts(Record):
    """How many jobs of a queue are in which state.

    ``due`` counts the scheduled jobs whose time has come, ``lapsed`` the claims whose lease has ended. ``inexact`` names the
    figures of which there are more than counted; ``oldest_pending_at`` is since when the oldest due job has been so.
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
    inexact: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueStats(Record):
    """Every queue of a scope at ``server_time``. No figure counts beyond ``counted_to``, 1,000."""

    queues: tuple[QueueCounts, ...]
    server_time: datetime
    counted_to: int

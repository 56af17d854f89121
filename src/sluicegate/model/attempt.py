"""An attempt: one committed claim of a job, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sluicegate.model._record import Record


@dataclass(frozen=True, slots=True)
class PriorAttempt(Record):
    """A closed attempt, as the next claim of the job is told about it."""

    seq: int
    opened_at: datetime
    ended_at: datetime
    outcome: str
    disposition: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Attempt(Record):
    """An attempt in a job's history; ``ended_at``, ``outcome`` and ``disposition`` are None while it is open.

    ``seq`` counts every claim the job ever had and is never reset; ``attempt`` is the counter ``max_attempts`` bounds.
    ``account`` is the one whose quota was used up, in an attempt that was refused and therefore does not count.
    """

    id: int
    seq: int
    attempt: int
    opened_at: datetime
    worker: str | None
    ended_at: datetime | None
    outcome: str | None
    disposition: str | None
    started: bool | None
    account: str | None
    error: str | None
    summary: str | None

"""What changing a job from outside answers: retry now, cancel, and the two housekeeping verbs."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.model._record import Record


@dataclass(frozen=True, slots=True)
class Retried(Record):
    """A job that was put back to pending at once, its attempts counted from 0 again."""

    job_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Cancelled(Record):
    """A cancelled job, or (``cancel_requested``) a claimed one whose holder learns of it at its next heartbeat."""

    job_id: int
    state: str
    cancel_requested: bool
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Reaped(Record):
    """How many lapsed claims were put back, dead-lettered or cancelled."""

    requeued: int
    dead_lettered: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class Pruned(Record):
    """How many rows retention removed.

    ``attempt_counts`` are the counts of attempts that went before, ``usage`` and ``forgiven`` what windows long ended were
    charged and forgiven, ``windows`` the definitions that nothing names any more, ``audit`` changes of policies.
    """

    jobs: int
    attempts: int
    requests: int
    late_calls: int
    attempt_counts: int = 0
    usage: int = 0
    forgiven: int = 0
    refusals: int = 0
    audit: int = 0
    windows: int = 0

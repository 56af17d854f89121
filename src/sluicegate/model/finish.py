"""A finish: how a worker gives a claimed job back, and what the database answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from sluicegate.model._record import Record

if TYPE_CHECKING:
    from sluicegate.model.claim import Claim
    from sluicegate.model.lease import Lease

CallStatus = Literal["ok", "conflict", "not_found", "invalid_argument", "unavailable"]
Outcome = Literal["completed", "failed", "released", "cancelled"]


@dataclass(frozen=True, slots=True)
class FinishItem(Record):
    """One finish to send along with a claim; build it with one of the functions below."""

    job_id: int
    lease_token: str = field(repr=False)
    outcome: Outcome
    result: Any = None
    summary: str | None = None
    error: str | None = None
    retry_in_seconds: float | None = None
    retry: bool = True
    reason: str | None = None
    not_before: datetime | None = None
    started: bool = True
    account: str | None = None

    @classmethod
    def completed(cls, lease: Claim | Lease, result: Any = None, *, summary: str | None = None) -> FinishItem:
        """The job is done; ``result`` is any JSON value up to 1 MiB."""
        return cls(lease.job_id, lease.lease_token, "completed", result=result, summary=summary)

    @classmethod
    def failed(
        cls,
        lease: Claim | Lease,
        error: str,
        *,
        retry_in_seconds: float | None = None,
        retry: bool = True,
        summary: str | None = None,
    ) -> FinishItem:
        """The attempt failed. ``retry_in_seconds`` replaces the job's backoff; ``retry=False`` makes a dead letter."""
        return cls(
            lease.job_id,
            lease.lease_token,
            "failed",
            error=error,
            retry_in_seconds=retry_in_seconds,
            retry=retry,
            summary=summary,
        )

    @classmethod
    def released(
        cls,
        lease: Claim | Lease,
        *,
        reason: str | None = None,
        not_before: datetime | None = None,
        started: bool = True,
    ) -> FinishItem:
        """The job goes back unfinished; ``started=False`` (it never ran) gives the attempt back as well."""
        return cls(lease.job_id, lease.lease_token, "released", reason=reason, not_before=not_before, started=started)

    @classmethod
    def refused(
        cls, lease: Claim | Lease, *, account: str, reason: str | None = None, not_before: datetime | None = None
    ) -> FinishItem:
        """``account`` (1 to 128 bytes) has no quota left: the job goes back, and the attempt does not count.

        It stays charged to the queue's budget, since it was claimed.
        """
        return cls(lease.job_id, lease.lease_token, "released", reason=reason, not_before=not_before, account=account)

    @classmethod
    def dropped(cls, lease: Claim | Lease, *, reason: str | None = None) -> FinishItem:
        """Nobody needs the job any more: it ends as cancelled."""
        return cls(lease.job_id, lease.lease_token, "cancelled", reason=reason)


@dataclass(frozen=True, slots=True)
class Finish(Record):
    """The answer to a finish: the job's state after it, or why it was refused.

    ``status`` is ``ok``, ``conflict`` (the lease was lost, or had finished the job otherwise), ``not_found``,
    ``invalid_argument``, or ``unavailable``: another transaction held the job and nothing changed, so send it again.

    ``replayed`` means that this token had already finished the job in the same way. ``run_at`` is when a job that
    goes on will run again.
    """

    job_id: int
    status: CallStatus
    replayed: bool = False
    state: str | None = None
    dead_letter: bool = False
    run_at: datetime | None = None
    attempt: int | None = None
    max_attempts: int | None = None
    message: str | None = None

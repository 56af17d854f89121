"""A claim: a job taken, and the lease that proves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sluicegate.model._record import Record
from sluicegate.model.admission import Deferral
from sluicegate.model.attempt import PriorAttempt
from sluicegate.model.finish import Finish
from sluicegate.model.job import Job


@dataclass(frozen=True, slots=True)
class Claim(Record):
    """A job taken by this caller until ``lease_expires_at`` (by the database's clock).

    ``lease_token`` is a secret, so it is not shown by ``repr``. ``attempts_total`` counts every claim the job has had;
    ``prior_attempts`` holds the newest closed ones, at most five. ``account`` and ``admission`` may be None.
    """

    job: Job
    attempt_id: int
    attempt_seq: int
    attempts_total: int
    prior_attempts: tuple[PriorAttempt, ...]
    lease_token: str = field(repr=False)
    lease_expires_at: datetime
    account: Any = None
    admission: Any = None

    @property
    def job_id(self) -> int:
        return self.job.id


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """One of several claims in a call: up to ``n`` (1 to 1,000) jobs of ``queues``. See ``Client.claim``."""

    queues: tuple[str, ...]
    n: int = 1
    lease_seconds: int | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class GoneJob(Record):
    """A job that an earlier answer to the same request id held, and that is no longer claimed by it."""

    job_id: int
    state: str


@dataclass(frozen=True, slots=True)
class ClaimRefusal(Record):
    """Why the claim part of a call was refused although its finishes stand.

    ``outcome_unknown``: the call had been sent before, and that may have claimed: repeat it with the same request id.
    """

    code: str
    message: str
    field: str | None = None
    next_step: str | None = None
    outcome_unknown: bool = False


@dataclass(frozen=True, slots=True)
class ClaimAnswer(Record):
    """What one claim call brought.

    ``empty`` is true only when nothing claimable is pending in any queue asked for. No claims, not empty and nothing
    deferred means ``busy``: others hold the rows at this moment, so ask again after a short wait. ``deferred`` names the
    closed queues, each with its reason and time, if less came than was asked for. ``finished`` has
    one answer for each finish the call carried, in order. ``gone`` and ``replayed`` concern a repeated request id.
    ``held`` names the queues that another transaction kept locked for longer than the call was to wait, as while a policy
    is being changed.
    """

    claims: tuple[Claim, ...]
    deferred: tuple[Deferral, ...]
    empty: bool
    gone: tuple[GoneJob, ...]
    replayed: bool
    finished: tuple[Finish, ...]
    server_time: datetime
    error: ClaimRefusal | None = None
    held: tuple[str, ...] = ()

    @property
    def busy(self) -> bool:
        return not (self.claims or self.deferred or self.empty or self.gone or self.error)


@dataclass(frozen=True, slots=True)
class ClaimAnswers(Record):
    """What a call with several claims brought: an answer for each in their order, and one for each finish it carried."""

    responses: tuple[ClaimAnswer, ...]
    finished: tuple[Finish, ...]
    server_time: datetime

"""What a handler may raise to say what becomes of its job, and the finish that each comes to."""

from __future__ import annotations

import traceback
from datetime import datetime, timedelta

from sluicegate.model import Claim, FinishItem

# What fits an error message: the end of a traceback is its point.
_MOST_TRACE = 8000
# Somebody who has just refused, or a deployment that is under way, is not asked again at once.
_LATER = timedelta(minutes=1)


class JobOutcome(Exception):
    """Base of the answers below. Anything else that a handler raises fails the attempt."""


class Release(JobOutcome):
    """Give the job back, to run again at once or from ``not_before`` on; the attempt stays spent."""

    def __init__(self, reason: str | None = None, not_before: datetime | None = None) -> None:
        super().__init__(reason or "released by its handler")
        self.reason = reason
        self.not_before = not_before


class RetryAfter(JobOutcome):
    """The attempt failed; try again after ``seconds`` instead of the job's backoff."""

    def __init__(self, seconds: float | timedelta, reason: str | None = None) -> None:
        super().__init__(reason or "to be retried")
        self.seconds = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)


class Cancel(JobOutcome):
    """Nobody needs the job any more: it ends as cancelled, and is not retried."""


class DeadLetter(JobOutcome):
    """The attempt failed, and no other one would do better: the job ends as failed."""


class QuotaExceeded(JobOutcome):
    """The provider refused: ``account`` (1 to 128 bytes) has nothing left until ``until`` (None: not known).

    The job goes back until then, or for a minute where that is not known or has passed, without having used up one of its ``max_attempts``. The claim stays
    charged: it was made.
    """

    def __init__(self, account: str, until: datetime | None = None, reason: str | None = None) -> None:
        super().__init__(reason or f"the quota of {account} is used up")
        self.account = account
        self.until = until


def finish(claim: Claim, error: BaseException, now: datetime) -> FinishItem:
    """The finish for a handler that ended with ``error``; ``now`` is the database's time."""
    match error:
        case Release():
            return FinishItem.released(claim, reason=str(error), not_before=error.not_before)
        case QuotaExceeded():
            return FinishItem.refused(
                claim,
                account=error.account,
                reason=str(error),
                not_before=now + _LATER if error.until is None or error.until <= now else error.until,
            )
        case RetryAfter():
            return FinishItem.failed(claim, str(error), retry_in_seconds=error.seconds)
        case Cancel():
            return FinishItem.dropped(claim, reason=str(error) or "cancelled by its handler")
        case DeadLetter():
            return FinishItem.failed(claim, str(error) or "given up by its handler", retry=False)
        case _:
            return FinishItem.failed(claim, described(error))


def without_handler(claim: Claim, now: datetime) -> FinishItem:
    """The finish for a job that nobody here can do. Every try is charged, so the next one is not made at once."""
    kind = f"kind {claim.job.kind}" if claim.job.kind else "jobs without a kind"
    return FinishItem.released(
        claim,
        reason=f"This worker has no handler for {kind} in queue {claim.job.queue}.",
        not_before=now + _LATER,
        started=False,
    )


def described(error: BaseException) -> str:
    """What was raised, and where: the message first, then the end of the traceback."""
    name = type(error).__name__
    said = str(error)
    trace = "".join(traceback.format_exception(error))[-_MOST_TRACE:]
    return f"{name}: {said}\n\n{trace}" if said else f"{name}\n\n{trace}"

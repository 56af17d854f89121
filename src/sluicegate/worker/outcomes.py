"""What a handler may raise to say what becomes of its job, and the finish that each comes to."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import traceback
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sluicegate.model import Claim, FinishItem
from sluicegate.ops import validate
from sluicegate.ops.requests import MAX_RETRY_SECONDS

# What fits an error message: the end of a traceback is its point.
_MOST_TRACE = 8000
# Somebody who has just refused, or a deployment that is under way, is not asked again at once.
_LATER = timedelta(minutes=1)
# Enough to see what was mistyped.
_MOST_KINDS = 10


class JobOutcome(Exception):
    """Base of the answers below. Anything else that a handler raises fails the attempt.

    What one is made with is checked there and then: InvalidArgument names the field.
    """


class Release(JobOutcome):
    """Give the job back, to run again from ``not_before`` on; the attempt stays spent.

    In a minute where no time is given, or one that has passed: every run is charged, and there is no last attempt.
    """

    def __init__(self, reason: str | None = None, not_before: datetime | None = None) -> None:
        super().__init__(reason or "released by its handler")
        self.reason = reason
        self.not_before = _moment(not_before, "not_before")


class RetryAfter(JobOutcome):
    """The attempt failed; try again after ``seconds`` (0 to a year) instead of the job's backoff."""

    def __init__(self, seconds: float | timedelta, reason: str | None = None) -> None:
        super().__init__(reason or "to be retried")
        number = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        self.seconds = validate.seconds(number, "seconds", MAX_RETRY_SECONDS)


class Cancel(JobOutcome):
    """Nobody needs the job any more: it ends as cancelled, and is not retried."""


class DeadLetter(JobOutcome):
    """The attempt failed, and no other one would do better: the job ends as failed."""


class QuotaExceeded(JobOutcome):
    """The provider refused: ``account`` (1 to 128 bytes) has nothing left until ``until`` (None: not known).

    The job goes back until then, or for a minute where that is not known or has passed, without having used up one of its
    ``max_attempts``. The claim stays charged: it was made.
    """

    def __init__(self, account: str, until: datetime | None = None, reason: str | None = None) -> None:
        self.account = validate.text(account, "account", 128, least=1)
        super().__init__(reason or f"the quota of {account} is used up")
        self.until = _moment(until, "until")


def _moment(value: Any, field: str) -> datetime | None:
    if isinstance(value, timedelta):
        validate.refuse(
            field, f"is {value}, how long and not when", f"{field} is a moment: datetime.now(UTC) + timedelta(…)."
        )
    if value is not None:
        validate.moment(value, field)
    return value if isinstance(value, datetime) else None


def finish(claim: Claim, error: BaseException, now: datetime, who: str) -> FinishItem:
    """The finish for a handler, called ``who``, that ended with ``error``; ``now`` is the database's time."""
    match error:
        case Release():
            return FinishItem.released(claim, reason=said(error), not_before=_to_come(error.not_before, now))
        case QuotaExceeded():
            return FinishItem.refused(
                claim,
                account=error.account,
                reason=said(error),
                not_before=_to_come(error.until, now),
            )
        case RetryAfter():
            return FinishItem.failed(claim, said(error), retry_in_seconds=error.seconds)
        case Cancel():
            return FinishItem.dropped(claim, reason=said(error) or "cancelled by its handler")
        case DeadLetter():
            return FinishItem.failed(claim, said(error) or f"{who} has given it up.", retry=False)
        case BaseExceptionGroup(exceptions=(JobOutcome() | BaseExceptionGroup() as alone,)):
            # That of a task which failed alone in its group. Of several failures, none speaks for the others.
            return (
                finish(claim, alone, now, who)
                if _is_outcome(alone)
                else FinishItem.failed(claim, described(error, who))
            )
        case _:
            return FinishItem.failed(claim, described(error, who))


def _is_outcome(error: BaseException) -> bool:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return isinstance(error, JobOutcome)


def _to_come(wished: datetime | None, now: datetime) -> datetime:
    return wished if wished is not None and wished > now else now + _LATER


def without_handler(claim: Claim, now: datetime, known: Sequence[str]) -> FinishItem:
    """The finish for a job that nobody here can do. Every try is charged, so the next one is not made at once."""
    kind = f"kind {claim.job.kind}" if claim.job.kind else "jobs without a kind"
    kinds = ", ".join(sorted(name or "none" for name in known)[:_MOST_KINDS]) + (
        ", …" if len(known) > _MOST_KINDS else ""
    )
    return FinishItem.released(
        claim,
        reason=f"This worker has no handler for {kind} in queue {claim.job.queue}, only for: {kinds}. The job goes back for "
        "a minute without having used up an attempt, but the claim is charged to a budget each time: start a worker that has one, or cancel the job.",
        not_before=now + _LATER,
        started=False,
    )


def unfinished(value: Any) -> str | None:
    """If a handler returned work instead of doing it: what it did, and what to do about it. The work is called off."""
    if inspect.iscoroutine(value):
        what, advice = "a coroutine", "Declare it with async def, and await what it calls."
    elif inspect.isgenerator(value) or inspect.isasyncgen(value):
        what, advice = "a generator", "Go through it in the handler, and return what comes of it."
    elif inspect.isawaitable(value):
        what, advice = f"{type(value).__name__}, which has to be awaited", "Await it."
    else:
        return None
    with contextlib.suppress(BaseException):
        if isinstance(value, asyncio.Future):
            value.cancel()
        elif not inspect.isasyncgen(value):
            value.close()
    return f"returned {what}, so the job is not done. {advice}"


def described(error: BaseException, who: str) -> str:
    """What was raised, and where: the message first, then the end of the traceback."""
    text = said(error)
    trace = "".join(traceback.format_exception(error))[-_MOST_TRACE:]
    return f"{who} raised {type(error).__name__}{f': {text}' if text else ''}\n\n{trace}"


def said(error: BaseException) -> str:
    """The text of an error, which may be anybody's, and raise whatever it likes when it is asked."""
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001 - SystemExit too: it is only asked what it says
        return f"(its text cannot be read: that raises {type(broken).__name__})"

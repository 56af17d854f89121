"""Answers of the SQL functions as model objects; a refusal of a single verb is raised."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sluicegate.errors import Conflict, Deferred, InvalidArgument, NotFound, Unavailable
from sluicegate.model import (
    Cancelled,
    Claim,
    ClaimAnswer,
    ClaimAnswers,
    Deferral,
    Enqueued,
    EnqueuedMany,
    Explanation,
    Finish,
    Heartbeat,
    JobDetail,
    JobPage,
    Pruned,
    QueueStats,
    Reaped,
    Retried,
)
from sluicegate.model._record import instant
from sluicegate.store.faults import refusal

Answer = Mapping[str, Any]


def enqueued(answer: Answer) -> Enqueued:
    return Enqueued.from_dict(answer)


def enqueued_many(answer: Answer) -> EnqueuedMany:
    return EnqueuedMany.from_dict(answer)


def claim_answer(answer: Answer) -> ClaimAnswer:
    """The answer to a call with one request."""
    (response,) = answer["responses"]
    error = response["error"]
    return ClaimAnswer.from_dict(
        {
            **response,
            "error": None if error is None else _refusal(error, repeated=answer.get("repeated", False)),
            "finished": answer["finished"],
            "server_time": answer["server_time"],
        }
    )


def claim_answers(answer: Answer) -> ClaimAnswers:
    """The answer to a call with several requests."""
    shared = {**answer, "finished": []}
    return ClaimAnswers(
        tuple(claim_answer({**shared, "responses": [response]}) for response in answer["responses"]),
        finishes(answer),
        instant(answer["server_time"]),
    )


def all_claims(answer: Answer) -> tuple[Claim, ...]:
    """What a call with several requests has claimed."""
    return tuple(claim for response in claim_answers(answer).responses for claim in response.claims)


def _refusal(error: Answer, *, repeated: bool) -> dict[str, object]:
    told = refusal(error["sqlstate"], error["message"], field=error["field"], hint=error["hint"])
    if isinstance(told, Unavailable):
        told.outcome_unknown = repeated
    return told.to_dict()


def claimed_job(answer: Answer) -> Claim:
    return Claim.from_dict(_granted(answer)["claim"])


def finish(answer: Answer) -> Finish:
    return Finish.from_dict(_granted(answer))


def finishes(answer: Answer) -> tuple[Finish, ...]:
    return tuple(map(Finish.from_dict, answer["finished"]))


def heartbeat(answer: Answer) -> Heartbeat:
    return Heartbeat.from_dict(_granted(answer))


def heartbeats(answer: Answer) -> tuple[Heartbeat, ...]:
    told = {"server_time": answer["server_time"]}
    return tuple(Heartbeat.from_dict({**item, **told}) for item in answer["heartbeats"])


def retried(answer: Answer) -> Retried:
    return Retried.from_dict(_granted(answer))


def cancelled(answer: Answer) -> Cancelled:
    return Cancelled.from_dict(_granted(answer))


def reaped(answer: Answer) -> Reaped:
    return Reaped.from_dict(answer)


def pruned(answer: Answer) -> Pruned:
    return Pruned.from_dict(answer)


def job_page(answer: Answer) -> JobPage:
    return JobPage.from_dict(answer)


def job_detail(answer: Answer) -> JobDetail:
    return JobDetail.from_dict(_granted(answer))


def explanation(answer: Answer) -> Explanation:
    return Explanation.from_dict(_granted(answer))


def queue_stats(answer: Answer) -> QueueStats:
    return QueueStats.from_dict(answer)


def server_time(answer: str) -> datetime:
    return instant(answer)


def unseen_claims(answer: Answer) -> tuple[Claim, ...]:
    """The claim in an answer that nobody waits for any more, if it holds one."""
    return (claimed_job(answer),) if answer["status"] == "ok" else ()


def _granted(answer: Answer) -> Answer:
    """The answer if the verb was granted; raises what refused it otherwise."""
    match answer["status"]:
        case "ok":
            return answer
        case "not_found":
            raise NotFound(answer["message"])
        case "conflict":
            raise Conflict(
                answer["message"],
                state=answer.get("state"),
                conflicting_job_id=answer.get("conflicting_job_id"),
            )
        case "deferred":
            entry = answer["deferred"]
            raise Deferred(answer["message"], entry=Deferral.from_dict(entry).to_dict(), next_step=_when(answer))
        case "unavailable" | "busy":
            raise Unavailable(answer["message"])
        case _:
            raise InvalidArgument(answer["message"], field=answer.get("field"))


def _when(answer: Answer) -> str:
    moment = answer["deferred"]["next_eligible_at"]
    told = f"Ask again at {instant(moment).isoformat(timespec='seconds')}. " if moment is not None else ""
    return f"{told}`sluicegate explain {answer['job_id']}` shows what would admit it now."

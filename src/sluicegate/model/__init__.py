"""The nouns of Sluicegate: frozen dataclasses that are the API's JSON objects, and nothing but the standard library."""

from sluicegate.model.attempt import Attempt, PriorAttempt
from sluicegate.model.change import Cancelled, Pruned, Reaped, Retried
from sluicegate.model.claim import Claim, ClaimAnswer, ClaimRefusal, GoneJob
from sluicegate.model.finish import Finish, FinishItem
from sluicegate.model.job import (
    JOB_STATES,
    Backoff,
    Enqueued,
    EnqueuedMany,
    FullJob,
    Job,
    JobDetail,
    JobPage,
    JobRow,
    JobState,
    NewJob,
)
from sluicegate.model.lease import Heartbeat, Lease
from sluicegate.model.queue import QueueCounts, QueueStats

__all__ = [
    "JOB_STATES",
    "Attempt",
    "Backoff",
    "Cancelled",
    "Claim",
    "ClaimAnswer",
    "ClaimRefusal",
    "Enqueued",
    "EnqueuedMany",
    "Finish",
    "FinishItem",
    "FullJob",
    "GoneJob",
    "Heartbeat",
    "Job",
    "JobDetail",
    "JobPage",
    "JobRow",
    "JobState",
    "Lease",
    "NewJob",
    "PriorAttempt",
    "Pruned",
    "QueueCounts",
    "QueueStats",
    "Reaped",
    "Retried",
]

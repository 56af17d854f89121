"""Sluicegate: a work queue on PostgreSQL with every start of a job on record.

Jobs are claimed, retried and finished by SQL functions, each in one transaction. How much may start, by calendar window
and at once, is decided inside the claim.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluicegate.client import Client
    from sluicegate.errors import (
        Conflict,
        Deferred,
        DuplicateQueue,
        EmbeddedError,
        Forbidden,
        InvalidArgument,
        InvalidFloor,
        InvalidPool,
        InvalidRate,
        InvalidWeight,
        InvalidWorker,
        MinWorkersExceedGlobal,
        NoQueues,
        NotFound,
        PoolRequired,
        SchemaMismatch,
        SluicegateError,
        Unavailable,
        UnknownOption,
        WrongIsolation,
    )
    from sluicegate.model import (
        AdmissionStatus,
        Attempt,
        AuditEntry,
        AwaitedClaim,
        Backlog,
        Backoff,
        Budget,
        BudgetAudit,
        Cancelled,
        Claim,
        ClaimAnswer,
        ClaimAnswers,
        ClaimRefusal,
        ClaimRequest,
        ClosedGate,
        Deferral,
        Demand,
        Enqueued,
        EnqueuedMany,
        Explanation,
        Finish,
        FinishItem,
        Forgiven,
        FullJob,
        Gate,
        GoneJob,
        HardReserved,
        Heartbeat,
        Holder,
        Job,
        JobAdmission,
        JobDetail,
        JobPage,
        JobRow,
        Lease,
        NewJob,
        NextJob,
        NextJobs,
        PriorAttempt,
        Pruned,
        QueueAdmission,
        QueueCapacity,
        QueueCounts,
        QueueDemand,
        QueueHealth,
        QueueStats,
        Reaped,
        Rehearsal,
        RehearsedDay,
        Retried,
        ShadowLimit,
        UsedWindow,
        Verdict,
        Weighted,
        Window,
        WindowLimit,
        WorkerHealth,
    )
    from sluicegate.sync_client import SyncClient
    from sluicegate.worker.capacity import QueueConfig
    from sluicegate.worker.context import Context, ThreadContext
    from sluicegate.worker.events import WorkerEvent, WorkerReport
    from sluicegate.worker.handlers import App
    from sluicegate.worker.outcomes import Cancel, DeadLetter, QuotaExceeded, Release, RetryAfter
    from sluicegate.worker.worker import Worker

__all__ = [
    "AdmissionStatus",
    "App",
    "Attempt",
    "AuditEntry",
    "AwaitedClaim",
    "Backlog",
    "Backoff",
    "Budget",
    "BudgetAudit",
    "Cancel",
    "Cancelled",
    "Claim",
    "ClaimAnswer",
    "ClaimAnswers",
    "ClaimRefusal",
    "ClaimRequest",
    "Client",
    "ClosedGate",
    "Conflict",
    "Context",
    "DeadLetter",
    "Deferral",
    "Deferred",
    "Demand",
    "DuplicateQueue",
    "EmbeddedError",
    "Enqueued",
    "EnqueuedMany",
    "Explanation",
    "Finish",
    "FinishItem",
    "Forbidden",
    "Forgiven",
    "FullJob",
    "Gate",
    "GoneJob",
    "HardReserved",
    "Heartbeat",
    "Holder",
    "InvalidArgument",
    "InvalidFloor",
    "InvalidPool",
    "InvalidRate",
    "InvalidWeight",
    "InvalidWorker",
    "Job",
    "JobAdmission",
    "JobDetail",
    "JobPage",
    "JobRow",
    "Lease",
    "MinWorkersExceedGlobal",
    "NewJob",
    "NextJob",
    "NextJobs",
    "NoQueues",
    "NotFound",
    "PoolRequired",
    "PriorAttempt",
    "Pruned",
    "QueueAdmission",
    "QueueCapacity",
    "QueueConfig",
    "QueueCounts",
    "QueueDemand",
    "QueueHealth",
    "QueueStats",
    "QuotaExceeded",
    "Reaped",
    "Rehearsal",
    "RehearsedDay",
    "Release",
    "Retried",
    "RetryAfter",
    "SchemaMismatch",
    "ShadowLimit",
    "SluicegateError",
    "SyncClient",
    "ThreadContext",
    "Unavailable",
    "UnknownOption",
    "UsedWindow",
    "Verdict",
    "Weighted",
    "Window",
    "WindowLimit",
    "Worker",
    "WorkerEvent",
    "WorkerHealth",
    "WorkerReport",
    "WrongIsolation",
]

# Names are imported when first used: the command line wants errors without the time the driver takes to load.
_HOMES = ("errors", "model")
_OTHERS = {
    "App": "worker.handlers",
    "Cancel": "worker.outcomes",
    "Client": "client",
    "Context": "worker.context",
    "DeadLetter": "worker.outcomes",
    "QueueConfig": "worker.capacity",
    "QuotaExceeded": "worker.outcomes",
    "Release": "worker.outcomes",
    "RetryAfter": "worker.outcomes",
    "SyncClient": "sync_client",
    "ThreadContext": "worker.context",
    "Worker": "worker.worker",
    "WorkerEvent": "worker.events",
    "WorkerReport": "worker.events",
}


def __getattr__(name: str) -> Any:
    if name in _OTHERS:
        return getattr(import_module(f"sluicegate.{_OTHERS[name]}"), name)
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"sluicegate.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'sluicegate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

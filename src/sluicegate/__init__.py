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
        EmbeddedError,
        Forbidden,
        InvalidArgument,
        NotFound,
        SchemaMismatch,
        SluicegateError,
        Unavailable,
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
        ClaimRefusal,
        ClosedGate,
        Deferral,
        Enqueued,
        EnqueuedMany,
        Explanation,
        Finish,
        FinishItem,
        Forgiven,
        FullJob,
        Gate,
        GoneJob,
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
        QueueCounts,
        QueueStats,
        Reaped,
        Rehearsal,
        RehearsedDay,
        Retried,
        ShadowLimit,
        UsedWindow,
        Verdict,
        Window,
        WindowLimit,
    )
    from sluicegate.sync_client import SyncClient

__all__ = [
    "AdmissionStatus",
    "Attempt",
    "AuditEntry",
    "AwaitedClaim",
    "Backlog",
    "Backoff",
    "Budget",
    "BudgetAudit",
    "Cancelled",
    "Claim",
    "ClaimAnswer",
    "ClaimRefusal",
    "Client",
    "ClosedGate",
    "Conflict",
    "Deferral",
    "Deferred",
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
    "Heartbeat",
    "Holder",
    "InvalidArgument",
    "Job",
    "JobAdmission",
    "JobDetail",
    "JobPage",
    "JobRow",
    "Lease",
    "NewJob",
    "NextJob",
    "NextJobs",
    "NotFound",
    "PriorAttempt",
    "Pruned",
    "QueueAdmission",
    "QueueCounts",
    "QueueStats",
    "Reaped",
    "Rehearsal",
    "RehearsedDay",
    "Retried",
    "SchemaMismatch",
    "ShadowLimit",
    "SluicegateError",
    "SyncClient",
    "Unavailable",
    "UsedWindow",
    "Verdict",
    "Window",
    "WindowLimit",
    "WrongIsolation",
]

# Names are imported when first used: the command line wants errors without the time the driver takes to load.
_HOMES = ("errors", "model")
_CLIENTS = {"Client": "client", "SyncClient": "sync_client"}


def __getattr__(name: str) -> Any:
    if name in _CLIENTS:
        return getattr(import_module(f"sluicegate.{_CLIENTS[name]}"), name)
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"sluicegate.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'sluicegate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

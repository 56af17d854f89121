"""Sluicegate: a work queue on PostgreSQL with every start of a job on record.

Jobs are claimed, retried and finished by SQL functions, each in one transaction. Deciding inside the claim how much may
start (budgets, caps) is to come.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluicegate.client import Client
    from sluicegate.errors import (
        Conflict,
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
        Attempt,
        Backoff,
        Cancelled,
        Claim,
        ClaimAnswer,
        ClaimRefusal,
        Enqueued,
        EnqueuedMany,
        Finish,
        FinishItem,
        FullJob,
        GoneJob,
        Heartbeat,
        Job,
        JobDetail,
        JobPage,
        JobRow,
        Lease,
        NewJob,
        PriorAttempt,
        Pruned,
        QueueCounts,
        QueueStats,
        Reaped,
        Retried,
    )
    from sluicegate.sync_client import SyncClient

__all__ = [
    "Attempt",
    "Backoff",
    "Cancelled",
    "Claim",
    "ClaimAnswer",
    "ClaimRefusal",
    "Client",
    "Conflict",
    "EmbeddedError",
    "Enqueued",
    "EnqueuedMany",
    "Finish",
    "FinishItem",
    "Forbidden",
    "FullJob",
    "GoneJob",
    "Heartbeat",
    "InvalidArgument",
    "Job",
    "JobDetail",
    "JobPage",
    "JobRow",
    "Lease",
    "NewJob",
    "NotFound",
    "PriorAttempt",
    "Pruned",
    "QueueCounts",
    "QueueStats",
    "Reaped",
    "Retried",
    "SchemaMismatch",
    "SluicegateError",
    "SyncClient",
    "Unavailable",
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

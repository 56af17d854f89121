"""Sluicegate: a work queue on PostgreSQL that decides how much work may start inside the claim itself."""

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
        Backoff,
        Claim,
        ClaimAnswer,
        Enqueued,
        Finish,
        FinishItem,
        Heartbeat,
        Job,
        JobDetail,
        JobRow,
        Lease,
        NewJob,
    )
    from sluicegate.sync_client import SyncClient

__all__ = [
    "Backoff",
    "Claim",
    "ClaimAnswer",
    "Client",
    "Conflict",
    "EmbeddedError",
    "Enqueued",
    "Finish",
    "FinishItem",
    "Forbidden",
    "Heartbeat",
    "InvalidArgument",
    "Job",
    "JobDetail",
    "JobRow",
    "Lease",
    "NewJob",
    "NotFound",
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

"""Every error Sluicegate raises on purpose.

    SluicegateError          internal           anything the database said that we have no better word for
    ├── InvalidArgument      invalid_argument   SG001   a value was refused; ``field`` names it; nothing changed
    │   └── InvalidWorker                               the settings of a worker do not fit together; nothing was started
    │       ├── MinWorkersExceedGlobal                  the floors are more than the pool has slots
    │       ├── InvalidWeight                           a weight is not a whole number of at least 1
    │       ├── InvalidFloor                            a floor is negative, or above the queue's own cap
    │       ├── InvalidPool                             a pool, or a queue, without slots
    │       ├── InvalidRate                             a rate limit that lets nothing through
    │       ├── PoolRequired                            a floor or a weight, and no pool that they could divide
    │       ├── UnknownOption                           a setting that a queue does not have
    │       ├── DuplicateQueue                          one queue, set twice
    │       └── NoQueues                                nothing to work on
    ├── NotFound             not_found          SG002   no such job, queue or scope within reach
    ├── Conflict             conflict           SG003   the job, token or request id is not in the state this call needs
    ├── Deferred             deferred                   the job's queue is closed now; the job waits, and nothing was charged
    ├── WrongIsolation       wrong_isolation    SG004   the call ran in a transaction that is not READ COMMITTED
    ├── Forbidden            forbidden          SG005   the database role or grant does not allow this verb
    ├── Unavailable          unavailable                the database cannot be reached, or could not answer now
    ├── SchemaMismatch       schema_mismatch            the database schema and this library do not fit each other
    └── EmbeddedError        embedded                   the private PostgreSQL could not be installed, started or used

``str(error)`` is written for people: what happened, why, and what to do next. ``error.to_dict()`` is the same for
programs: ``{"code", "message"}`` and, where they are known, ``field``, ``next_step`` and the facts of the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

__all__ = [
    "Conflict",
    "Deferred",
    "DuplicateQueue",
    "EmbeddedError",
    "Forbidden",
    "InvalidArgument",
    "InvalidFloor",
    "InvalidPool",
    "InvalidRate",
    "InvalidWeight",
    "InvalidWorker",
    "MinWorkersExceedGlobal",
    "NoQueues",
    "NotFound",
    "PoolRequired",
    "SchemaMismatch",
    "SluicegateError",
    "Unavailable",
    "UnknownOption",
    "WrongIsolation",
]


class SluicegateError(Exception):
    """Base of every error here.

    ``message`` says what happened and why, ``next_step`` what to do about it (or None). ``code`` is stable and the
    same in Python, HTTP and the command line; ``sqlstate`` is the code our SQL functions raise it with, or None.
    """

    code: ClassVar[str] = "internal"
    sqlstate: ClassVar[str | None] = None

    def __init__(self, message: str, *, next_step: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        if self.next_step is None:
            return self.message
        return f"{self.message.rstrip()} {self.next_step}"

    def to_dict(self) -> dict[str, object]:
        """The error as the API's own JSON object; unknown facts are left out."""
        known = {"next_step": self.next_step, **self._facts()}
        return {
            "code": self.code,
            "message": self.message,
            **{key: value for key, value in known.items() if value is not None},
        }

    def _facts(self) -> dict[str, object]:
        return {}


class InvalidArgument(SluicegateError):
    """A value was refused before anything changed. ``field`` names it, e.g. ``priority`` or ``jobs[3].payload``."""

    code = "invalid_argument"
    sqlstate = "SG001"

    def __init__(self, message: str, *, field: str | None = None, next_step: str | None = None) -> None:
        super().__init__(message, next_step=next_step)
        self.field = field

    def _facts(self) -> dict[str, object]:
        return {"field": self.field}


class InvalidWorker(InvalidArgument):
    """The settings of a worker do not fit together; ``field`` names the queue and the setting. Nothing was started."""


class MinWorkersExceedGlobal(InvalidWorker):
    """The floors of all queues are more than ``global_max_workers``."""


class InvalidWeight(InvalidWorker):
    """A weight is not a whole number from 1 to 1,000,000."""


class InvalidFloor(InvalidWorker):
    """A floor is not a whole number of at least 0, or is above the queue's own cap."""


class InvalidPool(InvalidWorker):
    """A pool, or a queue, has no slots, or more than 10,000."""


class InvalidRate(InvalidWorker):
    """A rate limit would let nothing through, or is no number."""


class PoolRequired(InvalidWorker):
    """A floor or a weight was given without ``global_max_workers``, so there is no pool that it could divide."""


class UnknownOption(InvalidWorker):
    """A queue has no setting of this name."""


class DuplicateQueue(InvalidWorker):
    """One queue has been set twice."""


class NoQueues(InvalidWorker):
    """There is no queue to work on."""


class NotFound(SluicegateError):
    """No such job, queue or scope within reach: what does not exist and what belongs to others look the same."""

    code = "not_found"
    sqlstate = "SG002"


class Conflict(SluicegateError):
    """The thing exists but is not in the state this call needs.

    ``state`` is the job's state where it is known; ``conflicting_job_id`` is the newer live job that holds the
    dedup key, when a retry was refused for that reason.
    """

    code = "conflict"
    sqlstate = "SG003"

    def __init__(
        self,
        message: str,
        *,
        state: str | None = None,
        conflicting_job_id: int | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.state = state
        self.conflicting_job_id = conflicting_job_id

    def _facts(self) -> dict[str, object]:
        return {"state": self.state, "conflicting_job_id": self.conflicting_job_id}


class Deferred(SluicegateError):
    """The job's queue is closed now. The job stays pending, its attempts and its place untouched; nothing was charged.

    ``entry`` is the API's own object for a closed queue, as claims list it under ``deferred``: ``queue``, ``reason``,
    ``next_eligible_at`` (None while it is not known), ``exact``, and under ``all`` every limit that is closed.
    """

    code = "deferred"

    def __init__(self, message: str, *, entry: Mapping[str, Any] | None = None, next_step: str | None = None) -> None:
        super().__init__(message, next_step=next_step)
        self.entry = dict(entry or {})

    @property
    def queue(self) -> str | None:
        return self.entry.get("queue")

    @property
    def reason(self) -> str | None:
        return self.entry.get("reason")

    @property
    def next_eligible_at(self) -> datetime | None:
        moment = self.entry.get("next_eligible_at")
        return None if moment is None else datetime.fromisoformat(moment)

    @property
    def exact(self) -> bool:
        return bool(self.entry.get("exact"))

    @property
    def all(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.entry.get("all", ()))

    def to_dict(self) -> dict[str, object]:
        return {**super().to_dict(), **self.entry}


class WrongIsolation(SluicegateError):
    """The call ran in a transaction that is not READ COMMITTED, where counting after a wait is wrong."""

    code = "wrong_isolation"
    sqlstate = "SG004"


class Forbidden(SluicegateError):
    """The database role, or the endpoint's grant, does not allow this verb."""

    code = "forbidden"
    sqlstate = "SG005"


class Unavailable(SluicegateError):
    """The database cannot be reached, or could not answer now.

    ``retriable`` says whether the same call can succeed without anything being changed. ``outcome_unknown`` is true
    when the connection was lost after the call had been sent, so that it may have taken effect: repeat it with the
    same request id or lease token, which is always safe.
    """

    code = "unavailable"

    def __init__(
        self,
        message: str,
        *,
        retriable: bool = True,
        outcome_unknown: bool = False,
        next_step: str | None = None,
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.retriable = retriable
        self.outcome_unknown = outcome_unknown

    def _facts(self) -> dict[str, object]:
        return {"retriable": self.retriable, "outcome_unknown": self.outcome_unknown}


class SchemaMismatch(SluicegateError):
    """The database schema is missing, older, newer or changed by hand, so this library must not use it."""

    code = "schema_mismatch"


class EmbeddedError(SluicegateError):
    """The private PostgreSQL could not be installed, started or used; ``next_step`` says what to do."""

    code = "embedded"

"""A job: as it is asked for, as it was enqueued, and as lists and details show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from sluicegate.model._record import Record
from sluicegate.model.attempt import Attempt

JobState = Literal["scheduled", "pending", "claimed", "done", "failed", "cancelled"]
JOB_STATES: tuple[JobState, ...] = get_args(JobState)


@dataclass(frozen=True, slots=True)
class Backoff(Record):
    """How long a failed job waits: ``base_seconds``, doubling each time, up to ``max_seconds``; jitter is added.

    Both are up to 30 days. ``max_seconds`` None means 900, or ``base_seconds`` if that is more.
    """

    base_seconds: float = 30
    max_seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The API's JSON object; without ``max_seconds`` where there is none."""
        return {key: value for key, value in Record.to_dict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class NewJob(Record):
    """A job to enqueue.

    ``payload`` is any JSON value up to 1 MiB. ``priority`` is a smallint, lower runs first; None means 10, or the
    parent's. ``run_at`` is an aware datetime before the year 10000, None means now. ``dedup_key`` is unique among the
    live jobs of a scope. ``max_attempts`` (1 to 1000) attempts end in a dead letter; ``backoff`` None means 30 s doubling to 15 min.
    """

    queue: str
    payload: Any = None
    kind: str = ""
    title: str = ""
    priority: int | None = None
    run_at: datetime | None = None
    dedup_key: str | None = None
    tags: tuple[str, ...] = ()
    parent_id: int | None = None
    max_attempts: int = 5
    backoff: Backoff | None = None


@dataclass(frozen=True, slots=True)
class Enqueued(Record):
    """The job an enqueue stands for; ``created`` is false when a live job already held the dedup key."""

    id: int
    created: bool
    state: JobState
    queue: str


@dataclass(frozen=True, slots=True)
class EnqueuedMany(Record):
    """One answer for each job of a bulk enqueue, in the order asked; ``replayed`` if its request id was known."""

    jobs: tuple[Enqueued, ...]
    replayed: bool = False

    def __iter__(self) -> Iterator[Enqueued]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


@dataclass(frozen=True, slots=True)
class Job(Record):
    """A job as its claim hands it over."""

    id: int
    queue: str
    kind: str
    title: str
    payload: Any
    priority: int
    tags: tuple[str, ...]
    parent_id: int | None
    attempt: int
    max_attempts: int


@dataclass(frozen=True, slots=True)
class JobAdmission(Record):
    """Whether a job that waits may start: what its queue says at the moment it is asked.

    ``state`` is ``admitted`` or ``deferred``, and then there is a ``reason``, as in Deferral. ``next_eligible_at`` is
    when it ends, None if that is not known, surely so if ``exact``.
    """

    state: str
    reason: str | None
    next_eligible_at: datetime | None
    exact: bool


@dataclass(frozen=True, slots=True)
class JobRow(Record):
    """A job in a list: everything but its payload and result.

    ``payload_size`` is how many bytes the payload takes in the database, where it is compressed if it is large.
    ``admission`` is None for a job that does not wait.
    """

    id: int
    queue: str
    state: JobState
    class_: str
    priority: int
    run_at: datetime
    kind: str
    title: str
    tags: tuple[str, ...]
    parent_id: int | None
    dedup_key: str | None
    attempt: int
    max_attempts: int
    attempts_total: int
    worker: str | None
    lease_expires_at: datetime | None
    dead_letter: bool
    cancel_requested: bool
    note: str | None
    payload_size: int
    created_at: datetime
    claimed_at: datetime | None
    finished_at: datetime | None
    error: str | None
    admission: JobAdmission | None


@dataclass(frozen=True, slots=True)
class JobPage(Record):
    """Jobs, newest first; pass ``next_before_id`` as ``before_id`` for the next page, None means there is none.

    One page looks at so many jobs and no more, so that of a rare kind it may be short, or empty, and not the last.
    """

    jobs: tuple[JobRow, ...]
    next_before_id: int | None


@dataclass(frozen=True, slots=True)
class FullJob(JobRow):
    """A job with everything it carries."""

    payload: Any
    result: Any
    backoff: Backoff | None


@dataclass(frozen=True, slots=True)
class JobDetail(Record):
    """One job and its attempts, newest first."""

    job: FullJob
    attempts: tuple[Attempt, ...]

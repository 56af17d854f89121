"""A lease: the right to finish a job, and what its heartbeats answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sluicegate.model._record import Record
from sluicegate.model.finish import CallStatus


@dataclass(frozen=True, slots=True)
class Lease(Record):
    """A job and the secret that proves who holds it; every place that takes a lease takes a Claim as well."""

    job_id: int
    lease_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Heartbeat(Record):
    """The answer to a heartbeat.

    ``status`` is ``ok``, ``conflict`` (the lease was lost: stop working on the job), ``not_found``, or
    ``unavailable``: another transaction held the job, the lease is as it was, so ask again soon. ``cancelled`` means
    that the job's cancellation was asked for. The remaining lease is ``lease_expires_at - server_time``, both
    by the database's clock.
    """

    job_id: int
    status: CallStatus
    server_time: datetime
    lease_expires_at: datetime | None = None
    cancelled: bool = False
    message: str | None = None

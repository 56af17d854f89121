"""What a run of ``exec`` was asked for, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluicegate.errors import InvalidArgument
from sluicegate.ops import validate
from sluicegate.ops.requests import MAX_LEASE_SECONDS

MAX_CONCURRENCY = 1000
MAX_SECONDS = 31_536_000


@dataclass(frozen=True, slots=True)
class Terms:
    """See ``run_exec`` for the meaning of each."""

    queues: tuple[str, ...]
    concurrency: int
    lease_seconds: int | None
    timeout: float | None
    drain: bool
    grace: float
    release_delay: float

    @classmethod
    def checked(
        cls,
        queue: str | Sequence[str],
        *,
        concurrency: int,
        lease_seconds: int | None,
        timeout: float | None,
        drain: bool,
        grace: float,
        release_delay: float,
    ) -> Terms:
        """Raises InvalidArgument naming the field."""
        if timeout is not None and validate.seconds(timeout, "timeout", MAX_SECONDS) == 0:
            raise InvalidArgument(
                "timeout is 0, so no command could do anything.",
                field="timeout",
                next_step="Give it more time, or leave the timeout out.",
            )
        if lease_seconds is not None:
            validate.whole(lease_seconds, "lease_seconds", 1, MAX_LEASE_SECONDS)
        return cls(
            queues=tuple(validate.queue_names([queue] if isinstance(queue, str) else queue)),
            concurrency=validate.whole(concurrency, "concurrency", 1, MAX_CONCURRENCY),
            lease_seconds=lease_seconds,
            timeout=timeout,
            drain=validate.flag(drain, "drain"),
            grace=validate.seconds(grace, "grace", MAX_SECONDS),
            release_delay=validate.seconds(release_delay, "release_delay", MAX_SECONDS),
        )

"""How long a worker waits for closed queues."""

from datetime import UTC, datetime, timedelta

import pytest

from sluicegate import ClaimAnswer, Deferral
from sluicegate.worker.parking import LONGEST, parked

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def closed(queue: str, seconds: float | None, *, exact: bool = True) -> Deferral:
    until = None if seconds is None else NOW + timedelta(seconds=seconds)
    return Deferral(
        queue=queue,
        reason="window_exhausted",
        pending=1,
        pending_exact=True,
        next_eligible_at=until,
        exact=exact,
        all=(),
    )


def wait(*deferred: Deferral, queues: tuple[str, ...] = ("a",)) -> float | None:
    answer = ClaimAnswer(
        claims=(), deferred=deferred, empty=False, gone=(), replayed=False, finished=(), server_time=NOW
    )
    return parked(answer, queues)


@pytest.mark.parametrize(
    ("deferred", "queues", "least", "most"),
    [
        ((closed("a", 5),), ("a",), 5.0, 5.1),
        ((closed("a", 5), closed("b", 3)), ("a", "b"), 3.0, 3.1),
        ((closed("a", 86_400),), ("a",), LONGEST, LONGEST + 0.1),
        ((closed("a", -1),), ("a",), 0.01, 0.1),
    ],
)
def test_it_waits_for_the_earliest_time(
    deferred: tuple[Deferral, ...], queues: tuple[str, ...], least: float, most: float
) -> None:
    seconds = wait(*deferred, queues=queues)
    assert seconds is not None
    assert least <= seconds <= most


@pytest.mark.parametrize(
    ("deferred", "queues"),
    [
        ((closed("a", 5, exact=False),), ("a",)),
        ((closed("a", None, exact=False),), ("a",)),
        ((closed("a", 5), closed("b", 3, exact=False)), ("a", "b")),
        ((closed("a", 5),), ("a", "b")),
    ],
)
def test_it_goes_on_asking_where_work_may_come_earlier(deferred: tuple[Deferral, ...], queues: tuple[str, ...]) -> None:
    assert wait(*deferred, queues=queues) is None

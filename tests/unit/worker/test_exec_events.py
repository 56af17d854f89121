"""What a run tells of closed queues and of having nothing to do: at each change, and once in between."""

from datetime import UTC, datetime

from sluicegate.model import Deferral
from sluicegate.worker.events import Tally, WorkerEvent

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def closed(reason: str, until: datetime | None = None, *, exact: bool = True) -> Deferral:
    return Deferral(
        queue="a", reason=reason, pending=1, pending_exact=True, next_eligible_at=until, exact=exact, all=()
    )


def telling() -> tuple[Tally, list[WorkerEvent]]:
    events: list[WorkerEvent] = []
    return Tally(events.append, lambda: None), events


def reasons(events: list[WorkerEvent]) -> list[str]:
    return [event.deferral.reason for event in events if event.deferral is not None]


def test_a_closing_is_told_once_and_every_change_of_its_reason_again() -> None:
    tally, events = telling()
    for entry in (
        closed("window_exhausted", NOON), closed("window_exhausted", NOON), closed("paused"), closed("paused"),
        closed("window_exhausted", NOON),
    ):  # fmt: skip
        tally.deferred([entry])
    assert reasons(events) == ["window_exhausted", "paused", "window_exhausted"]


def test_a_second_pause_is_told_when_the_queue_was_open_in_between() -> None:
    tally, events = telling()
    tally.deferred([closed("paused")])
    tally.opened({"a", "b"})
    tally.deferred([closed("paused")])
    assert reasons(events) == ["paused", "paused"]


def test_a_full_queue_that_comes_and_goes_is_told_once() -> None:
    tally, events = telling()
    for _ in range(3):
        tally.deferred([closed("in_flight_full", NOON, exact=False)])
        tally.opened({"a"})
    assert reasons(events) == ["in_flight_full"]


def test_waiting_is_told_once() -> None:
    tally, events = telling()
    tally.waiting()
    tally.waiting()
    assert [event.kind for event in events] == ["waiting"]

"""What a worker tells people: how many jobs are in the way of its end, and sums that add up."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluicegate.cli.narration import Narrator, last_line
from sluicegate.model import Deferral
from sluicegate.worker.events import EventKind, WorkerEvent, WorkerReport


def of_job(kind: EventKind, attempt_id: int) -> WorkerEvent:
    job = SimpleNamespace(id=1, attempt=1, max_attempts=5)
    return WorkerEvent(kind, cast("Any", SimpleNamespace(attempt_id=attempt_id, job=job)))


@pytest.mark.parametrize(
    ("running", "grace", "told"),
    [
        (0, 30, ""),
        (1, 30, "One job still running may take 30 s more, and is ended and given back after that. A second signal ends it at once."),
        (2, 300, "2 jobs still running may take 5 min more, and are ended and given back after that. A second signal ends them at once."),
        (2, 0, "2 jobs still running are ended now."),
    ],
)  # fmt: skip
def test_stopping_says_how_many_jobs_run_and_for_how_long(running: int, grace: float, told: str) -> None:
    narrator = Narrator("q", grace)
    for attempt in range(running + 1):
        narrator.line(of_job("started", attempt))
    narrator.line(of_job("released", 99))  # one that never started
    narrator.line(of_job("done", running))
    assert (
        narrator.line(WorkerEvent("stopping", message="SIGINT was received"))
        == f"Stopping: SIGINT was received. {told}".strip()
    )


def test_a_second_stop_says_what_it_does_and_not_again_how_long_jobs_may_take() -> None:
    narrator = Narrator("q", 30)
    narrator.line(of_job("started", 1))
    narrator.line(WorkerEvent("stopping", message="SIGINT was received"))
    again = "what still runs is ended now, as it was asked to stop again"
    assert narrator.line(WorkerEvent("stopping", message=again)) == f"Stopping: {again}."


def test_the_sums_of_the_last_line_are_all_attempts() -> None:
    report = WorkerReport(claimed=3, done=1, failed=2, dead_letters=1, seconds=1.0)
    assert last_line(report) == "3 attempts in 1.0 s: 1 done, 2 failed (1 dead letter among them)"


def test_a_closed_queue_in_which_nothing_waits_is_told_without_a_number() -> None:
    closed = Deferral(
        queue="q", reason="paused", pending=0, pending_exact=True, next_eligible_at=None, exact=False, all=()
    )
    assert Narrator("q", 1).line(WorkerEvent("deferred", deferral=closed)) == (
        "q is deferred: paused, until it is opened"
    )

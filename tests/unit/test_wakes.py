"""Which enqueues tell workers of their jobs, and that none is missed where they do not."""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left

import pytest

from sluicegate.ops import wakes
from sluicegate.ops.wakes import Wakes
from sluicegate.worker import loop
from sluicegate.worker.loop import Lookout, Pace

SCOPE = "endpoint:default"
LONG = 60.0


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (wakes, loop):
            monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def add(made: Wakes, clock: Clock, queue: str = "q", seconds: float = 0.001, *, new: bool = True) -> tuple[bool, bool]:
    """One call: whether it told, and whether that had to be done after it."""
    call = made.call(SCOPE, [queue])
    clock.now += seconds
    return call.wake, made.done(call, [queue] if new else [])


def test_at_an_easy_pace_every_job_is_told(clock: Clock) -> None:
    made = Wakes()
    for _ in range(500):
        assert add(made, clock) == (True, False)
        clock.now += 1 / 50


def test_at_a_fast_pace_few_are(clock: Clock) -> None:
    made = Wakes()
    told = sum(add(made, clock)[0] for _ in range(5000))
    assert 300 <= told <= 5 * 80 + 11


def test_each_queue_and_scope_is_told_for_itself(clock: Clock) -> None:
    made = Wakes()
    while add(made, clock)[0]:
        pass
    assert add(made, clock, "other")[0]
    assert made.call("endpoint:other", ["q"]).wake
    assert made.call(SCOPE, ["q", "third"]).wake
    assert not made.call(SCOPE, ["q", "other"]).wake or made.call(SCOPE, ["other"]).wake


def test_what_failed_or_added_nothing_counts_for_nobody(clock: Clock) -> None:
    made = Wakes()
    for _ in range(100):
        assert made.call(SCOPE, ["q"]).wake, "none of them has ended"
    for _ in range(100):
        assert add(made, clock, new=False) == (True, False)


def test_a_call_that_took_long_is_told_of_after_it(clock: Clock) -> None:
    made = Wakes()
    while add(made, clock)[0]:
        pass
    assert add(made, clock, seconds=1.0) == (False, True)


def test_a_slow_call_that_added_nothing_is_not(clock: Clock) -> None:
    made = Wakes()
    while add(made, clock)[0]:
        pass
    assert add(made, clock, seconds=1.0, new=False) == (False, False)


def test_it_remembers_a_bounded_number_of_queues(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakes, "_MOST_QUEUES", 10)
    made = Wakes()
    for number in range(100):
        assert add(made, clock, str(number))[0]
    assert len(made._queues) <= 10


def looks_after(clock: Clock, news: list[float]) -> list[float]:
    """When a worker looks that hears at these times and would otherwise sleep for a minute."""
    lookout = Lookout(Pace(LONG, LONG))
    looks: list[float] = []
    due = float("inf")
    waiting = sorted(news)
    while waiting or due < float("inf"):
        if waiting and waiting[0] <= due:
            clock.now = heapq.heappop(waiting)
            lookout.news()
        else:
            clock.now = due
        looks.append(clock.now)
        due = clock.now + lookout.wait()
        if due > clock.now + 1:
            due = float("inf")
    return looks


@pytest.mark.parametrize("seed", range(20))
def test_after_every_commit_a_worker_looks_within_fifty_milliseconds(clock: Clock, seed: int) -> None:
    """Calls that overlap, that are slow, and that fail, by one client; notifications that are late."""
    chance = random.Random(seed)
    made = Wakes()
    events: list[tuple[float, int, str]] = []
    start = clock.now
    for number in range(400):
        start += chance.choice([0, 0.0005, 0.003, 0.02, 0.1]) * chance.random()
        heapq.heappush(events, (start, number, "start"))
    calls: dict[int, tuple[wakes.Call, float, bool]] = {}
    news: list[float] = []
    commits: list[tuple[float, float]] = []
    while events:
        clock.now, number, what = heapq.heappop(events)
        if what == "start":
            call = made.call(SCOPE, ["q"])
            seconds = chance.choice([0.001, 0.005, 0.05, 0.3]) * chance.random()
            calls[number] = (call, clock.now + seconds * chance.random(), chance.random() < 0.9)
            heapq.heappush(events, (clock.now + seconds, number, "end"))
            continue
        call, committed, succeeded = calls[number]
        if not succeeded:
            continue
        late = made.done(call, ["q"])
        commits.append((committed, clock.now if late else committed))
        if call.wake:
            news.append(committed + 0.01 * chance.random())
        elif late:
            news.append(clock.now)
    assert len(news) < len(commits), "some were not told of"
    looks = looks_after(clock, news)
    for committed, latest in commits:
        found = bisect_left(looks, committed)
        assert found < len(looks), "nobody ever looked"
        assert looks[found] <= latest + 0.05


def test_the_times_of_both_sides_fit() -> None:
    assert wakes._QUIET < wakes._SEEN < Lookout._WHILE
    assert Lookout._SOON < 0.05

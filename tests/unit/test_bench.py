"""What judges a measurement."""

import math

from bench.fleet import Stint, most_at_once
from bench.report import Delay, at_least, at_most


def test_handlers_of_all_processes_count_towards_the_most_at_once() -> None:
    one, other = Stint([(0, 10, 1), (2, 5, 2)]), Stint([(4, 12, 3), (20, 21, 4)])

    assert most_at_once([one, other]) == 3
    assert most_at_once([]) == 0


def test_a_handler_that_begins_when_another_ends_does_not_run_beside_it() -> None:
    assert most_at_once([Stint([(0, 10, 1)]), Stint([(10, 20, 2), (20, 20, 3)])]) == 1


def test_percentiles_are_samples_and_what_never_came_is_the_slowest() -> None:
    delay = Delay("start", [float(n) for n in range(1, 101)], {50: 50.0, 99: 98.0})
    missed = Delay("start", [1.0, math.inf, 2.0], {50: 5.0, 99: 5.0})

    assert (delay.percentile(50), delay.percentile(99)) == (50.0, 99.0)
    assert delay.goal == "p50 ≤ 50 ms met; p99 ≤ 98 ms not met"
    assert (missed.percentile(50), missed.missed) == (2.0, 1)
    assert missed.goal == "p50 ≤ 5 ms met; p99 ≤ 5 ms not met"


def test_a_goal_is_told_with_its_verdict() -> None:
    assert at_least(0.3, 0.25, 0.5) == "≥ 0.25 met, then ≥ 0.5 not met"
    assert at_most(5, 5, "ms") == "≤ 5 ms met"

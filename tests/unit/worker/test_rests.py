"""Queues that are left alone for a while, each for its own reason and no longer than that asks for."""

import pytest

from sluicegate.worker.rests import Rests


@pytest.fixture
def rests() -> Rests:
    return Rests()


def test_a_queue_that_answers_does_not_rest(rests: Rests) -> None:
    assert rests.left(10.0) == {}
    rests.failed("q", sent_at=9.0, now=10.0)
    rests.held("p", 10.0)
    rests.answered("q")
    rests.answered("p")
    assert rests.left(10.0) == {}


def test_after_an_error_a_queue_rests_a_second_or_until_there_is_news(rests: Rests) -> None:
    rests.failed("q", sent_at=9.0, now=10.0)
    assert rests.left(10.0) == {"q": pytest.approx(1.0)}
    assert rests.left(11.0) == {}
    rests.failed("q", sent_at=11.0, now=11.0)
    rests.news(11.1, opened=False)
    assert rests.left(11.1) == {}


def test_news_that_came_while_the_call_was_on_its_way_is_not_undone_by_its_error(rests: Rests) -> None:
    rests.news(10.0, opened=False)
    rests.failed("q", sent_at=9.9, now=10.1)
    assert rests.left(10.1) == {}
    rests.failed("q", sent_at=10.1, now=10.2)
    assert rests.left(10.2) == {"q": pytest.approx(1.0)}


def test_a_queue_that_is_held_rests_briefly_at_first_and_never_for_more_than_half_a_second(rests: Rests) -> None:
    seen = []
    for _ in range(6):
        rests.held("q", 10.0)
        seen.append(rests.left(10.0)["q"])
    assert seen == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.5, 0.5])
    rests.answered("q")
    rests.held("q", 20.0)
    assert rests.left(20.0)["q"] == pytest.approx(0.05)


def test_only_a_policy_that_was_changed_ends_the_rest_of_a_held_queue(rests: Rests) -> None:
    rests.held("q", 10.0)
    rests.news(10.0, opened=False)
    assert set(rests.left(10.0)) == {"q"}
    rests.news(10.0, opened=True)
    assert rests.left(10.0) == {}


def test_of_two_reasons_the_longer_one_counts(rests: Rests) -> None:
    rests.held("q", 10.0)
    rests.failed("q", sent_at=9.0, now=10.0)
    assert rests.left(10.0) == {"q": pytest.approx(1.0)}

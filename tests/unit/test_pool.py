"""The allocation of a pool: its promises for any input, and shares against a slow oracle."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.model.pool import Contender, Debts, grants, shares


@st.composite
def contenders(draw: st.DrawFn, most: int = 8) -> tuple[int, list[Contender]]:
    """A pool and its queues: floors that fit, and no more running than there are slots."""
    capacity = draw(st.integers(1, 40))
    found, floors, running = [], 0, 0
    for number in range(draw(st.integers(1, most))):
        floor = draw(st.integers(0, max(0, min(6, capacity - floors))))
        cap = draw(st.none() | st.integers(max(floor, 1), 20))
        holds = draw(st.integers(0, min(capacity - running, 12)))
        floors, running = floors + floor, running + holds
        found.append(
            Contender(
                queue=f"q{number}",
                weight=draw(st.sampled_from([1, 1, 2, 3, 9, 100])),
                floor=floor,
                cap=cap,
                lends=draw(st.booleans()),
                running=holds,
                ready=draw(st.sampled_from([0, 0, 1, 2, 5, 50])),
                owed=draw(st.floats(-5, 5)),
                served=draw(st.integers(0, 9)),
            )
        )
    return capacity, found


def after(capacity: int, queues: list[Contender]) -> Counter[str]:
    """What each holds once the free slots are given away."""
    return Counter({one.queue: one.running for one in queues}) + Counter(grants(capacity, queues))


@given(contenders())
def test_no_slot_is_given_twice_nor_to_who_cannot_use_it(case: tuple[int, list[Contender]]) -> None:
    capacity, queues = case
    held = after(capacity, queues)
    assert sum(held.values()) <= max(capacity, sum(one.running for one in queues))
    for one in queues:
        assert held[one.queue] <= one.demand
        assert one.cap is None or held[one.queue] <= max(one.cap, one.running)


@given(contenders())
def test_no_slot_stays_free_while_somebody_could_use_it(case: tuple[int, list[Contender]]) -> None:
    capacity, queues = case
    held = after(capacity, queues)
    kept = sum(max(0, one.floor - held[one.queue]) for one in queues if not one.lends)
    wanted = sum(one.demand - held[one.queue] for one in queues)
    assert wanted == 0 or sum(held.values()) + kept >= capacity


@given(contenders())
def test_a_floor_comes_first(case: tuple[int, list[Contender]]) -> None:
    capacity, queues = case
    held = after(capacity, queues)
    below = [one for one in queues if held[one.queue] < one.least]
    if below:
        # Then nobody got a slot who was not below his own.
        assert all(held[one.queue] <= max(one.running, one.least) for one in queues)


@given(contenders())
def test_a_floor_that_is_not_lent_is_there_at_once(case: tuple[int, list[Contender]]) -> None:
    capacity, queues = case
    idle = [replace(one, running=0, ready=0) if not one.lends else one for one in queues]
    held = after(capacity, idle)
    back = [replace(one, running=held[one.queue], ready=50 if not one.lends else one.ready) for one in idle]
    if sum(one.running for one in idle) + sum(one.floor for one in idle if not one.lends) <= capacity:
        again = after(capacity, back)
        for one in back:
            assert one.lends or again[one.queue] >= min(one.floor, one.demand)


@given(contenders(), st.randoms())
def test_the_order_of_asking_decides_nothing(case: tuple[int, list[Contender]], dice: random.Random) -> None:
    capacity, queues = case
    numbered = [replace(one, served=number) for number, one in enumerate(queues)]
    mixed = numbered[:]
    dice.shuffle(mixed)
    assert grants(capacity, mixed) == grants(capacity, numbered)
    assert shares(capacity, mixed) == shares(capacity, numbered)


@given(contenders(), st.integers(0, 30))
def test_idle_queues_change_nothing(case: tuple[int, list[Contender]], number: int) -> None:
    capacity, queues = case
    idle = [Contender(queue=f"idle{n}", weight=100, floor=n % 2) for n in range(number)]
    assert grants(capacity, [*queues, *idle]) == grants(capacity, queues)
    told = shares(capacity, [*queues, *idle])
    assert {name: told[name] for name in shares(capacity, queues)} == shares(capacity, queues)
    assert all(told[one.queue] == 0 for one in idle)


def oracle(capacity: int, queues: list[Contender]) -> dict[str, float]:
    """By halving: the level at which the pool is used up."""
    room = capacity - sum(one.kept for one in queues)

    def at(level: float) -> dict[str, float]:
        return {one.queue: min(max(level * one.weight, min(one.floor, one.demand)), one.demand) for one in queues}

    low, high = 0.0, 1000.0
    if sum(at(high).values()) <= room:
        return at(high)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(at(middle).values()) <= room else (low, middle)
    return at(low)


@given(contenders())
def test_shares_are_those_of_the_oracle(case: tuple[int, list[Contender]]) -> None:
    capacity, queues = case
    assert shares(capacity, queues) == pytest.approx(oracle(capacity, queues), abs=1e-6)


@settings(max_examples=2000)
@given(contenders())
def test_whole_slots_go_as_raising_the_least_served_by_weight_would_have_it(case: tuple[int, list[Contender]]) -> None:
    """With nothing owed and nothing running: raise, one slot after the other, whoever has the smallest (x + 1) / weight."""
    capacity, queues = case
    fresh = [replace(one, running=0, owed=0.0, lends=True, served=number) for number, one in enumerate(queues)]
    held = {one.queue: 0 for one in fresh}
    by_name = {one.queue: one for one in fresh}
    served = {one.queue: one.served for one in fresh}
    for turn in range(capacity):
        open_ = [one for one in fresh if held[one.queue] < one.demand]
        if not open_:
            break
        first = [one for one in open_ if held[one.queue] < one.least] or open_
        chosen = min(first, key=lambda one: ((held[one.queue] + 1) / one.weight, served[one.queue]))
        held[chosen.queue] += 1
        served[chosen.queue] = 100 + turn
    given_ = after(capacity, fresh)
    deserved = shares(capacity, fresh)
    assert sum(given_.values()) == sum(held.values())
    for name in held:
        assert given_[name] < deserved[name] + 1 or by_name[name].least >= given_[name]
        assert given_[name] > deserved[name] - 1


# Time passes


def play(
    capacity: int,
    queues: dict[str, Contender],
    seconds: dict[str, float],
    until: float,
    arrives: dict[str, float] | None = None,
) -> tuple[Counter[str], Counter[str]]:
    """Jobs without end: how many of each queue were started, and the slot-seconds they had, by a scheduler as the worker is."""
    debts, now = Debts(), 0.0
    ends: list[tuple[float, str]] = []
    started: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    served: dict[str, int] = {}
    turn = 0
    arrives = arrives or {}
    while now < until:
        seen = []
        for name, one in queues.items():
            running = sum(1 for _, queue in ends if queue == name)
            ready = one.ready if now >= arrives.get(name, 0.0) else 0
            seen.append(replace(one, running=running, ready=ready, owed=debts.owed(name), served=served.get(name, 0)))
        debts.see(now, capacity, seen)
        seen = [replace(one, owed=debts.owed(one.queue)) for one in seen]
        for name in grants(capacity, seen, span=debts.span or 1.0):
            turn += 1
            served[name] = turn
            ends.append((now + seconds[name], name))
            started[name] += 1
            spent[name] += seconds[name]
        debts.see(now, capacity, [replace(one, running=sum(1 for _, q in ends if q == one.queue)) for one in seen])
        ends.sort()
        coming = [at for name, at in arrives.items() if at > now]
        now = min([ends[0][0], *coming]) if ends else min(coming)
        while ends and ends[0][0] <= now:
            debts.held(seconds[ends.pop(0)[1]])
    return started, spent


def queue(name: str, **fields: int) -> Contender:
    return Contender(queue=name, ready=1000, **fields)


@pytest.mark.parametrize("length", [0.01, 0.1, 5.0])
def test_one_slot_and_two_queues_take_turns(length: float) -> None:
    started, _ = play(
        1, {"a": queue("a"), "b": queue("b")}, {"a": length, "b": length}, 1000 * length, {"b": 20 * length}
    )
    assert started["b"] == pytest.approx(490, abs=5)


@pytest.mark.parametrize("length", [0.01, 1.0])
@pytest.mark.parametrize("capacity", [1, 2, 4, 7])
def test_three_to_one_is_three_to_one_however_slots_are_freed(capacity: int, length: float) -> None:
    started, _ = play(
        capacity,
        {"a": queue("a", weight=3), "b": queue("b")},
        {"a": length, "b": length * 1.01},
        2000 * length / capacity,
    )
    assert started["a"] / started.total() == pytest.approx(0.75, abs=0.03)


def test_four_slots_and_three_equal_queues() -> None:
    names = ("a", "b", "c")
    started, _ = play(4, {name: queue(name) for name in names}, dict.fromkeys(names, 0.1), 100)
    for name in names:
        assert started[name] == pytest.approx(started.total() / 3, rel=0.03)


def test_hundred_to_one_over_ten_slots_starves_nobody() -> None:
    started, _ = play(10, {"a": queue("a", weight=100), "b": queue("b")}, {"a": 0.1, "b": 0.1}, 200)
    assert started["b"] == pytest.approx(started.total() / 101, rel=0.1)


def test_the_unit_is_slot_time() -> None:
    _, spent = play(10, {"a": queue("a"), "b": queue("b")}, {"a": 0.01, "b": 10.0}, 200)
    assert spent["a"] / spent.total() == pytest.approx(0.5, abs=0.05)


def test_a_newcomer_gets_its_share_and_not_what_it_missed() -> None:
    started, _ = play(10, {"a": queue("a"), "b": queue("b")}, {"a": 5.0, "b": 5.0}, 105, {"b": 2.5})
    assert started["b"] == pytest.approx(100, abs=12)


def test_shares_of_the_published_example() -> None:
    some = [Contender(queue="a", weight=2, ready=2), Contender(queue="b", ready=99), Contender(queue="c", ready=99)]
    assert shares(12, some) == {"a": 2, "b": 5, "c": 5}
    five = [Contender(queue=str(n), ready=99) for n in range(5)]
    assert sorted(Counter(grants(8, five)).values()) == [1, 1, 2, 2, 2]
    assert math.isclose(sum(shares(8, five).values()), 8)

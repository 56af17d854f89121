"""Settings of a worker that do not fit together are refused by name, field and queue, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate import (
    App,
    DuplicateQueue,
    InvalidArgument,
    InvalidFloor,
    InvalidPool,
    InvalidRate,
    InvalidWeight,
    InvalidWorker,
    MinWorkersExceedGlobal,
    NoQueues,
    PoolRequired,
    QueueConfig,
    UnknownOption,
)
from sluicegate.worker.capacity import checked

CASES: list[tuple[Any, int | None, type[InvalidWorker], str]] = [
    ({}, None, NoQueues, "queues"),
    ([("a", {}), ("a", {})], None, DuplicateQueue, "a"),
    ({"a": {"wieght": 2}}, 10, UnknownOption, "a.wieght"),
    ({"a": {"min_worker": 2}}, 10, UnknownOption, "a.min_worker"),
    ({"a": {"min_workers": 2}}, None, PoolRequired, "a.min_workers"),
    ({"a": {"weight": 2}}, None, PoolRequired, "a.weight"),
    ({"a": {"lend_floor": False}}, None, PoolRequired, "a.lend_floor"),
    ({"a": {}}, 0, InvalidPool, "global_max_workers"),
    ({"a": {}}, -1, InvalidPool, "global_max_workers"),
    ({"a": {}}, 10_001, InvalidPool, "global_max_workers"),
    ({"a": {}}, True, InvalidPool, "global_max_workers"),
    ({"a": {"max_workers": 0}}, None, InvalidPool, "a.max_workers"),
    ({"a": {"max_workers": 2.5}}, None, InvalidPool, "a.max_workers"),
    ({"a": {"weight": 0}}, 10, InvalidWeight, "a.weight"),
    ({"a": {"weight": -3}}, 10, InvalidWeight, "a.weight"),
    ({"a": {"weight": 4_294_967_295}}, 10, InvalidWeight, "a.weight"),
    ({"a": {"weight": "2"}}, 10, InvalidWeight, "a.weight"),
    ({"a": {"min_workers": -1}}, 10, InvalidFloor, "a.min_workers"),
    ({"a": {"min_workers": 4, "max_workers": 3}}, 10, InvalidFloor, "a.min_workers"),
    ({"a": {"min_workers": 1, "lend_floor": 1}}, 10, InvalidFloor, "a.lend_floor"),
    ({"a": {"min_workers": 5}, "b": {"min_workers": 3}}, 5, MinWorkersExceedGlobal, "min_workers"),
    ({"a": {"rate_per_second": 0}}, None, InvalidRate, "a.rate_per_second"),
    ({"a": {"rate_per_second": float("nan")}}, None, InvalidRate, "a.rate_per_second"),
    ({"a": {"rate_per_second": 1, "burst": 0}}, None, InvalidRate, "a.burst"),
    ({"a": {"burst": 3}}, None, InvalidRate, "a.burst"),
    ({"a": {}, "b": {"min_workers": 5, "lend_floor": False}}, 5, InvalidFloor, "a.min_workers"),
    ({"a": 5}, None, InvalidWorker, "a"),
    ({f"q{number}": {} for number in range(1001)}, None, InvalidWorker, "queues"),
]


@pytest.mark.parametrize(("queues", "pool", "kind", "field"), CASES)
def test_what_cannot_be_meant_is_refused_by_its_queue_and_field(
    queues: Any, pool: int | None, kind: type[InvalidWorker], field: str
) -> None:
    with pytest.raises(InvalidWorker) as refused:
        checked(queues, pool)
    assert (type(refused.value), refused.value.field) == (kind, field)
    assert refused.value.next_step
    assert isinstance(refused.value, InvalidArgument)
    if queues:
        with pytest.raises(kind):
            App(queues, global_max_workers=pool)


# What the published implementation takes silently, wraps, or refuses without a word on where: each with our words.
SILENT: list[tuple[Any, int | None, str]] = [
    ({"a": {"min_workers": 2}}, None, "Queue a sets min_workers, and there is no pool that it could divide."),
    ({"a": {"wieght": 2}}, 10, "Queue a has no setting 'wieght'."),
    ({"a": {"min_worker": 2}}, 10, "Queue a has no setting 'min_worker'."),
    ({"a": {}}, 0, "global_max_workers is 0."),
    ({"a": {"weight": 10**5000}}, 10, "a.weight is something of type int."),
    ({"a": {"weight": 4_294_967_295}, "b": {"weight": 4_294_967_295}}, 10, "a.weight is 4294967295."),
    ({"a": {"weight": -1}}, 10, "a.weight is -1."),
    ({"a": {"weight": 0}}, 10, "a.weight is 0."),
    ({}, 10, "A worker without queues would do nothing."),
    ([("a", {}), ("a", {"weight": 2})], 10, "Queue a is set twice."),
    ({"a": {"rate_per_second": 0}}, 10, "Queue a has a rate of 0 a second."),
    (
        {"a": {"min_workers": 5}, "b": {"min_workers": 3}},
        5,
        "sum of min_workers (8) exceeds global_max_workers (5)",
    ),
]


@pytest.mark.parametrize(("queues", "pool", "message"), SILENT)
def test_what_is_wrong_is_said_with_the_queue_and_the_setting(queues: Any, pool: int | None, message: str) -> None:
    with pytest.raises(InvalidWorker) as refused:
        checked(queues, pool)
    assert refused.value.message == message


def test_a_cap_is_honoured_in_a_pool() -> None:
    assert checked({"a": {"max_workers": 3}}, 10).most("a") == 3
    assert checked({"a": {"max_workers": 30}}, 10).most("a") == 10


def test_a_misspelt_argument_of_queue_config_is_named() -> None:
    with pytest.raises(TypeError, match="wieght"):
        QueueConfig(wieght=2)  # type: ignore[call-arg]


def test_a_queue_name_that_breaks_the_rule_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        checked({"a b": {}})


def test_the_defaults_are_those_of_the_mode() -> None:
    reserved = checked({"a": {}, "b": {"max_workers": 3}})
    assert (reserved.pool, reserved.slots, reserved.most("a"), reserved.most("b")) == (None, 53, 50, 3)
    weighted = checked({"a": QueueConfig(weight=3, max_workers=8), "b": {"min_workers": 20}}, 20)
    assert (weighted.pool, weighted.slots, weighted.most("a"), weighted.most("b")) == (20, 20, 8, 20)
    a, b = weighted.contender("a"), weighted.contender("b")
    assert (a.weight, a.floor, a.cap, a.lends) == (3, 0, 8, True)
    assert (b.weight, b.floor, b.cap, b.lends) == (1, 20, None, True)

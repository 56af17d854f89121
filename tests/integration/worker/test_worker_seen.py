"""What a worker says of its queues: what they could use, and why they wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sluicegate import Client, Worker
from tests.integration.worker.doors import Doors, backlog, truth
from tests.support.waiting import eventually_async


def waits(worker: Worker) -> dict[str, str | None]:
    return {queue.queue: queue.waits_for for queue in worker.health().queues}


def wants(worker: Worker) -> dict[str, int]:
    return {queue.queue: queue.demand for queue in worker.health().queues}


async def until_said(worker: Worker, expected: Mapping[str, str | None]) -> None:
    await eventually_async(
        lambda: truth(waits(worker) == expected), f"it says {expected}; last: {worker.health().queues}"
    )


@pytest.mark.parametrize("slots", [4, 10])
async def test_a_job_that_runs_is_not_one_that_waits_as_well(client: Client, work: Any, slots: int) -> None:
    doors = Doors({"a": {}, "b": {}}, slots)
    await backlog(client, a=2, b=2)
    worker = await work(doors)
    await doors.full(4)
    await until_said(worker, {"a": None, "b": None})
    assert wants(worker) == {"a": 2, "b": 2}
    assert [queue.share for queue in worker.health().queues] == [2, 2]


async def test_it_says_that_the_pool_is_full(client: Client, work: Any) -> None:
    doors = Doors({"a": {}, "b": {}}, 2)
    await backlog(client, a=5)
    worker = await work(doors)
    await doors.full(2)
    await until_said(worker, {"a": "pool", "b": None})
    assert wants(worker)["a"] > 2


async def test_it_goes_on_saying_that_a_cap_is_reached_while_it_looks_at_other_queues(
    client: Client, work: Any
) -> None:
    doors = Doors({"a": {"max_workers": 1}, "b": {}}, 4)
    await backlog(client, a=3)
    worker = await work(doors)
    await doors.full(1)
    await until_said(worker, {"a": "cap", "b": None})
    await backlog(client, b=1)
    await doors.full(2)
    await until_said(worker, {"a": "cap", "b": None})
    assert wants(worker) == {"a": 1, "b": 1}


async def test_it_says_that_there_is_no_token(client: Client, work: Any) -> None:
    doors = Doors({"a": {"rate_per_second": 0.001}, "b": {}}, 4)
    await backlog(client, a=3)
    worker = await work(doors)
    await doors.full(1)
    await until_said(worker, {"a": "rate", "b": None})

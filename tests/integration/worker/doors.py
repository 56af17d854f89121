"""Handlers that run until they are let out, and a worker of them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from sluicegate import App, Client, NewJob, Worker
from tests.support.waiting import eventually_async


class Doors:
    """Handlers that run until they are let out."""

    def __init__(self, queues: Mapping[str, Mapping[str, Any]], slots: int | None) -> None:
        self.app = App(queues, global_max_workers=slots)
        self.inside: dict[int, tuple[str, asyncio.Future[None]]] = {}
        self.started: Counter[str] = Counter()
        self.starts: list[float] = []
        self.most = 0
        for queue in queues:
            self.app.handler(queue=queue, kind="")(self._handler(queue))

    def _handler(self, queue: str) -> Any:
        number = 0

        async def run(payload: Any) -> None:
            nonlocal number
            del payload
            me = id(asyncio.current_task())
            self.started[queue] += 1
            self.starts.append(time.monotonic())
            self.inside[me] = (queue, asyncio.get_running_loop().create_future())
            self.most = max(self.most, self.running())
            try:
                await self.inside[me][1]
            finally:
                del self.inside[me]

        return run

    def running(self, queue: str | None = None) -> int:
        return sum(1 for name, door in self.inside.values() if queue in (None, name) and not door.done())

    def let_out(self, number: int = 1, queue: str | None = None) -> None:
        """Some of those inside, whoever comes first by chance."""
        able = [door for name, door in self.inside.values() if queue in (None, name) and not door.done()]
        for door in random.Random(self.started.total()).sample(able, number):
            door.set_result(None)

    async def more(self, than: int) -> bool:
        return self.started.total() > than

    async def full(self, number: int) -> None:
        await eventually_async(lambda: truth(self.running() == number), f"{number} run; last seen: {self.inside}")


async def truth(value: bool) -> bool:
    return value


async def backlog(client: Client, **jobs: int) -> None:
    for queue, number in jobs.items():
        await client.enqueue_many([NewJob(queue) for _ in range(number)])


@pytest.fixture
async def work(client: Client) -> AsyncIterator[Any]:
    """``await work(doors)``: a worker of them, stopped at the end with all doors open."""
    made: list[tuple[Worker, Doors]] = []

    async def start(doors: Doors, **options: Any) -> Worker:
        worker = Worker(client, doors.app, grace=0, **options)
        made.append((worker, doors))
        await worker.start()
        return worker

    yield start
    for worker, _ in made:
        await worker.stop()

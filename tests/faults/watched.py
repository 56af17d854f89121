"""A worker in this process: what it told, what its handlers did when, and whether all its permits came back."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from sluicegate import App, Client, Worker
from sluicegate.worker.events import WorkerEvent
from sluicegate.worker.sharing import SharedSlots
from tests.support.waiting import eventually_async

QUEUE = "q"


class Diary:
    """Which jobs run at this moment in handlers of this process, and how often each has run."""

    def __init__(self) -> None:
        self.inside: Counter[int] = Counter()
        self.runs: Counter[int] = Counter()
        self.twice_at_once: set[int] = set()
        self.most = 0

    @contextmanager
    def of(self, job_id: int) -> Iterator[None]:
        self.runs[job_id] += 1
        self.inside[job_id] += 1
        if self.inside[job_id] > 1:
            self.twice_at_once.add(job_id)
        self.most = max(self.most, self.inside.total())
        try:
            yield
        finally:
            self.inside[job_id] -= 1


def app_of(function: Any, *, queue: str = QUEUE, slots: int | None = None, **options: Any) -> App:
    """An app with one handler, for jobs without a kind; ``slots`` makes it a shared pool of so many."""
    app = App({queue: {}}, global_max_workers=slots)
    app.handler(queue=queue, kind="", **options)(function)
    return app


class Watched:
    """``async with Watched(client, app) as watched:`` stops at once at the end, whatever still runs."""

    def __init__(self, client: Client, app: App, **options: Any) -> None:
        self.events: list[WorkerEvent] = []
        self.worker = Worker(client, app, on_event=self.events.append, **{"grace": 0, **options})

    async def __aenter__(self) -> Self:
        await self.worker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.worker.stop()

    async def told(self, kind: str, number: int = 1, timeout: float = 60) -> list[WorkerEvent]:
        """The events of that kind, once there are so many."""

        async def look() -> list[WorkerEvent]:
            found = [event for event in self.events if event.kind == kind]
            return found if len(found) >= number else []

        return await eventually_async(look, f"{number} events {kind}; last seen: {self.events[-5:]}", timeout)

    async def ready(self, wanted: bool = True, timeout: float = 60) -> None:
        async def look() -> bool:
            return self.worker.health().ready is wanted

        await eventually_async(look, f"ready: {wanted}", timeout)

    @property
    def slots(self) -> SharedSlots:
        assert self.worker._slots is not None
        return self.worker._slots

    @property
    def permits(self) -> int:
        """How many are out, for claims under way and for jobs that run."""
        return self.slots._permits.total

    async def all_permits_back(self, timeout: float = 60) -> None:
        async def look() -> bool:
            return self.permits == 0

        await eventually_async(look, "all permits are back", timeout)
        assert self.worker.health().running == 0
        assert not self.slots._asked


async def probed(address: str, path: str) -> tuple[int, Any]:
    """What a probe answers at HOST:PORT: status and health; 0 while nobody listens there."""

    def ask() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except urllib.error.URLError as error:
            return 0, str(error)

    return await asyncio.to_thread(ask)


async def until(fact: Any, what: str, timeout: float = 60) -> None:
    """Wait for a plain function to say something true."""

    async def look() -> bool:
        return bool(fact())

    await eventually_async(look, what, timeout)


async def turns(number: int) -> None:
    """Let everything else go so many steps on."""
    for _ in range(number):
        await asyncio.sleep(0)

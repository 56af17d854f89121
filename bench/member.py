"""One worker process of a fleet: ``python -m bench.member NAME``, on the database of SLUICEGATE_DSN.

Lines of JSON tell it what to do, and are its answers. A line is a ``Duty``. It starts a worker for it, and stops it at the
next line, which is empty; or, where it drains, when nothing is left. Then it answers what its handlers stamped. The
process stays, so that no figure holds its start.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

from sluicegate import App, Client, Worker


@dataclass(frozen=True, kw_only=True)
class Duty:
    """What the worker is to be. ``pause`` is how long its handler sleeps, in seconds; 0 lets the others run, None nobody.

    With ``tell``, it says at once when a handler begins.
    """

    queue: str
    slots: int = 50
    pause: float | None = None
    poll: float = 1.0
    drain: bool = False
    tell: bool = False


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer, separators=(",", ":")), flush=True)


def app_for(duty: Duty, stamps: list[tuple[int, int, int]]) -> App:
    """One handler, which stamps when it began, when it ended, and the number of its job, by the clock of this machine."""
    app = App(queues={duty.queue: {"max_workers": duty.slots}})
    now = time.monotonic_ns

    @app.handler(queue=duty.queue, kind="*")
    async def stamp(n: int = 0) -> None:
        began = now()
        if duty.tell:
            say({"began": began, "n": n})
        if duty.pause is not None:
            await asyncio.sleep(duty.pause)
        stamps.append((began, now(), n))

    return app


async def perform(client: Client, duty: Duty) -> dict[str, Any]:
    stamps: list[tuple[int, int, int]] = []
    worker = Worker(client, app_for(duty, stamps), poll=duty.poll, drain=duty.drain)
    await worker.start()
    if not duty.drain:
        await asyncio.to_thread(sys.stdin.readline)
        worker.ask_to_stop()
    report = await worker.finished()
    return {"stamps": stamps, "report": report.to_dict()}


async def serve(name: str) -> None:
    async with Client(worker=name) as client:
        say({"open": True})
        while line := await asyncio.to_thread(sys.stdin.readline):
            say(await perform(client, Duty(**json.loads(line))))


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))

"""How soon a waiting worker has what has just become possible: its poll is a minute away, so only news can wake it."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from bench.drivers import Psycopg
from bench.fleet import Member
from bench.member import Duty
from bench.ours import QUEUE, empty_tables
from bench.report import Delay
from sluicegate import Client, Lease

GOALS = {99: 100.0}
ELSEWHERE = "seconds"
_POLL = 60.0
# After this many seconds a try is "not woken"; after so many of them in a row the rest is not tried.
_PATIENCE = 5.0
_HOPELESS = 3
# A worker that has found something looks again by itself after 50 or 100 ms, then at intervals that double, give or take a
# fifth. So many seconds after it, nothing but news brings it back within 100 ms, or 500.
_QUIET = 0.43
_LONG_QUIET = 1.93
_UNTIL = 0.5

_HELD = "select exists (select from sluicegate.job where state = 'claimed')"
_TAKEN = "select sluicegate.enqueue('bench', '{\"n\": -1}')"
_CLAIMED = """select sluicegate.claim('[{"queues": ["bench"], "n": 1}]', 'bench')::text"""


@dataclass(frozen=True)
class Stage:
    """``client`` is whoever changes something, ``session`` a connection beside it, ``member`` the worker that waits."""

    client: Client
    session: Psycopg
    member: Member


# Makes job ``n`` possible for the worker that has waited; answers from when on it was, in ns by this machine's clock: the
# moment before the call that does, which is its last, or one that is still to come.
Provoke = Callable[[Stage, int], Awaitable[int]]


@dataclass(frozen=True)
class Cause:
    """Something that a waiting worker should notice. ``policy`` holds before the first try, after a first job."""

    name: str
    provoke: Provoke
    policy: dict[str, object] | None = None
    share: float = 1.0


async def new_job(stage: Stage, n: int) -> int:
    await quiet()
    acted = time.monotonic_ns()
    await stage.client.enqueue(QUEUE, {"n": n})
    return acted


async def raised(stage: Stage, n: int) -> int:
    """A window with nothing left gets one more."""
    used = await stage.session.value("select count(*) from sluicegate.attempt")
    await stage.client.enqueue(QUEUE, {"n": n})
    await quiet()
    acted = time.monotonic_ns()
    await stage.client.set_policy(QUEUE, monthly(used + 1))
    return acted


async def resumed(stage: Stage, n: int) -> int:
    await stage.client.pause(QUEUE)
    await stage.client.enqueue(QUEUE, {"n": n})
    await quiet()
    acted = time.monotonic_ns()
    await stage.client.resume(QUEUE)
    return acted


async def freed(stage: Stage, n: int) -> int:
    """Another process ends the job that has filled the queue."""
    # In one transaction, so that the waiting worker never sees the job free.
    async with stage.session.connection.transaction():
        await stage.session.run(_TAKEN)
        (claim,) = json.loads(await stage.session.value(_CLAIMED))["responses"][0]["claims"]
    await stage.client.enqueue(QUEUE, {"n": n})
    await quiet()
    acted = time.monotonic_ns()
    await stage.client.complete(Lease(claim["job"]["id"], claim["lease_token"]))
    return acted


async def reopened(stage: Stage, n: int) -> int:
    """A pause ends by itself: to a worker the same as a window that does, and no window is shorter than an hour."""
    await stage.client.pause(QUEUE)
    await stage.client.enqueue(QUEUE, {"n": n})
    await quiet()
    return await paused_until(stage, _UNTIL)


async def reopened_unseen(stage: Stage, n: int) -> int:
    """The same, but the queue closed and the job came long after the worker had looked last, and found nothing."""
    await quiet(_LONG_QUIET)
    at = await paused_until(stage, _UNTIL)
    await stage.client.enqueue(QUEUE, {"n": n})
    return at


async def paused_until(stage: Stage, seconds: float) -> int:
    """Close the queue for so many seconds; when that ends, by this machine's clock."""
    before = time.monotonic_ns()
    now = await stage.session.value("select sluicegate.clock()")
    # The database's clock was read somewhere in the middle of the call.
    read_at = (before + time.monotonic_ns()) // 2
    await stage.client.pause(QUEUE, until=now + timedelta(seconds=seconds))
    return read_at + int(seconds * 1e9)


def monthly(number: int) -> dict[str, object]:
    return {"limits": [{"max_claims_per_window": number, "window": {"period": "month", "tz": "UTC"}}]}


CAUSES = (
    Cause("new job", new_job),
    Cause("freed slot", freed, {"max_in_flight": 1}),
    Cause("raised limit", raised, monthly(1)),
    Cause("resumed", resumed, {"max_in_flight": 100}),
    Cause("boundary", reopened, {"max_in_flight": 100}),
    Cause("boundary, of a queue that closed while it was empty,", reopened_unseen, {"max_in_flight": 100}, share=1 / 3),
)


async def woken(stage: Stage, cause: Cause, tries: int, progress: Callable[[str], None]) -> Delay:
    """Each try by itself: the worker waits, the cause comes, the handler begins or does not."""
    name = f"{cause.name} to handler start"
    samples: list[float] = []
    calls: list[float] = []
    number = max(1, round(tries * cause.share))
    await begin(stage, cause)
    for n in range(1, number + 1):
        progress(f"{name}: try {n} of {number}")
        await settled(stage)
        since = await cause.provoke(stage, n)
        if (took := time.monotonic_ns() - since) > 0:
            calls.append(took / 1e6)
        began = await stage.member.began(n, _PATIENCE)
        samples.append(float("inf") if began is None else (began - since) / 1e6)
        if began is None:
            if len(samples) >= _HOPELESS and min(samples[-_HOPELESS:]) == float("inf"):
                break
            await stage.member.end()
            await begin(stage, cause)
    await stage.member.end()
    return Delay(name, samples, GOALS, ELSEWHERE, calls)


async def begin(stage: Stage, cause: Cause) -> None:
    """A worker that has done its first job, job 0, and waits."""
    await empty_tables(stage.session, 0)
    if cause.policy is not None:
        await stage.client.set_policy(QUEUE, cause.policy)
    await stage.client.enqueue(QUEUE, {"n": 0})
    stage.member.begin(Duty(queue=QUEUE, poll=_POLL, tell=True))
    if await stage.member.began(0, _PATIENCE) is None:
        raise RuntimeError("The worker did not start the job it found.")


async def settled(stage: Stage) -> None:
    """Wait until the end of the job before is on record."""
    async with asyncio.timeout(_PATIENCE):
        for _ in itertools.count():
            if not await stage.session.value(_HELD):
                return
            await asyncio.sleep(0.002)


async def quiet(seconds: float = _QUIET) -> None:
    """Wait until the worker waits."""
    await asyncio.sleep(seconds + random.uniform(0, 0.02))

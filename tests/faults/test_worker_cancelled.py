"""Claims broken off at random moments, by callers and inside a worker: every connection, job and permit is accounted for."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sluicegate import ClaimRequest, Client, FinishItem, NewJob, Unavailable, Worker
from sluicegate.model import Claim
from tests.conftest import Connection
from tests.faults.fleet import count
from tests.faults.watched import QUEUE, Diary, Watched, app_of, turns, until
from tests.support.counts import rounds
from tests.support.waiting import eventually_async

MOMENTS = (0, 1, 2, 5, 20, 60, 150, 400, 1000)
NOT_ENDED = "select count(*) from sluicegate.attempt a left join sluicegate.attempt_end e on e.attempt_id = a.id where e.attempt_id is null"
CLAIMED = "select count(*) from sluicegate.job where state = 'claimed'"
CHARGED = (
    "select coalesce(sum(attempts_total), 0)::bigint - (select count(*) from sluicegate.attempt) from sluicegate.job"
)


async def is_whole(client: Client) -> None:
    """Every connection of the client's pool is back, works, and nobody waits for one."""
    for _ in range(3):
        await asyncio.gather(*(client.queue_stats() for _ in range(8)))
    assert client._pool is not None
    pool = client._pool._pool

    def idle() -> bool:
        stats = pool.get_stats()
        return stats.get("requests_waiting", 0) == 0 and stats["pool_available"] == stats["pool_size"] > 0

    await until(idle, f"every connection is back; last seen: {pool.get_stats()}")


async def cancelled_at_random(task: asyncio.Task[Any], chance: random.Random) -> None:
    await turns(chance.choice(MOMENTS))
    task.cancel()


@pytest.mark.slow
async def test_claims_cancelled_at_random_moments_are_known_or_given_back(dsn: str, db: Connection) -> None:
    """Both kinds of claim, which carry finishes as well: who was cancelled asks again, and is told the same."""
    jobs, chance = 60, random.Random(4)
    held: list[Claim] = []
    unheard: list[FinishItem] = []
    known = cancelled = 0

    async with Client(dsn, max_size=4) as client:
        await client.enqueue_many([NewJob(f"q{number % 3}") for number in range(jobs)])

        async def one() -> None:
            nonlocal known, cancelled
            finished = [FinishItem.released(held.pop(), started=False) for _ in range(min(len(held), 3))]
            queues = chance.sample(("q0", "q1", "q2"), chance.randint(1, 3))
            if chance.random() < 0.5:
                call: Any = client.claim(*queues, n=chance.randint(1, 4), finished=finished)
            else:
                asks = [ClaimRequest((queue,), chance.randint(1, 4)) for queue in queues]
                call = client.claim_many(asks, finished=finished)
            task = asyncio.create_task(call)
            await cancelled_at_random(task, chance)
            try:
                answer = await task
            except asyncio.CancelledError:
                cancelled += 1
                unheard.extend(finished)
                return
            answers = answer.responses if hasattr(answer, "responses") else (answer,)
            claims = [claim for one in answers for claim in one.claims]
            known += len(claims)
            held.extend(claims)
            unheard.extend(
                item for item, told in zip(finished, answer.finished, strict=True) if told.status == "unavailable"
            )

        for _ in range(rounds(100, 1000) // 10):
            await asyncio.gather(*(one() for _ in range(10)))
        assert known > 0, "some must have been answered before they were cancelled"
        assert cancelled > 0
        await is_whole(client)

        # Whatever the cancelled calls brought goes back by itself.
        async def given_back() -> bool:
            return bool(await count(db, CLAIMED) <= len(held) + len(unheard))

        await eventually_async(given_back, "nobody holds a job unknowingly")
        # A finish that was cancelled before it was sent, or after it was made, can be sent again.
        items = [*unheard, *(FinishItem.released(claim, started=False) for claim in held)]
        for item in items:
            (told,) = await client.finish_many([item])
            assert told.status == "ok", told
    assert await count(db, CLAIMED) == 0
    assert await count(db, NOT_ENDED) == 0
    assert await count(db, CHARGED) == 0
    assert await count(db, "select count(*) from sluicegate.job where state = 'pending' and attempt = 0") == jobs
    in_the_background = "select count(*) from sluicegate.attempt_end where error like '%cancelled before its answer%'"
    assert await count(db, in_the_background) > 0, "some must have been cancelled after they were sent"


def broken_off(
    tick: Callable[[], Awaitable[Any]], chance: random.Random, cut: list[int]
) -> Callable[[], Awaitable[Any]]:
    """``tick``, some of whose calls are cancelled at a random moment, as one is that takes too long."""

    async def call() -> Any:
        if cut[0] <= 0 or chance.random() < 0.3:
            return await tick()
        task = asyncio.ensure_future(tick())
        await cancelled_at_random(task, chance)
        try:
            return await task
        except asyncio.CancelledError:
            cut[0] -= 1
            raise Unavailable("It was broken off.") from None

    return call


@pytest.mark.slow
@pytest.mark.parametrize("slots", [4, None], ids=["shared", "reserved"])
async def test_plans_and_claims_of_a_worker_broken_off_at_random_moments_lose_nothing(
    client: Client, db: Connection, slots: int | None
) -> None:
    jobs, cut, chance = rounds(300, 3000), [rounds(100, 1000)], random.Random(5)
    diary = Diary()

    async def do(payload: int) -> None:
        with diary.of(payload):
            await turns(payload % 7)

    await client.enqueue_many([NewJob(QUEUE, number) for number in range(jobs)])
    async with Watched(client, app_of(do, slots=slots)) as watched:
        assert watched.worker._run is not None
        loop = watched.worker._run.dispatcher.loop
        loop._tick = broken_off(loop._tick, chance, cut)
        # The pauses after each are not what this is about.
        loop._backoff._most = loop._backoff._least = 0.001
        while cut[0] > 0:
            before = cut[0]
            await client.enqueue(QUEUE, jobs)
            jobs += 1
            await until(lambda before=before: cut[0] < before, "the next is broken off")
        await until(lambda: len(diary.runs) == jobs, "every job has run")
        await watched.all_permits_back()
        await until(lambda: watched.worker.health().ready, "the database answers")
        assert diary.most <= (slots or 50)
    report = await watched.worker.stop()
    assert (report.done, report.failed, report.lost) == (jobs, 0, 0)
    assert set(diary.runs.values()) == {1}
    assert jobs == await count(db, "select count(*) from sluicegate.job where state = 'done'")
    assert await count(db, NOT_ENDED) == 0
    assert await count(db, CHARGED) == 0
    await is_whole(client)


@pytest.mark.slow
async def test_workers_ended_at_random_moments_leave_no_permit_and_no_job_behind(
    client: Client, db: Connection
) -> None:
    jobs, chance = rounds(200, 2000), random.Random(6)
    diary = Diary()

    async def do(payload: int) -> None:
        with diary.of(payload):
            await turns(payload % 5)

    await client.enqueue_many([NewJob(QUEUE, number, max_attempts=1000) for number in range(jobs)])
    for number in range(rounds(40, 400)):
        watched = Watched(client, app_of(do, slots=4), lease_seconds=5)
        await watched.worker.start()
        await turns(1 + chance.choice(MOMENTS))
        if number % 3 == 0:
            assert watched.worker._over is not None
            watched.worker._over.cancel()
        else:
            for _ in range(number % 3):
                watched.worker.ask_to_stop()
        with contextlib.suppress(asyncio.CancelledError):
            await watched.worker.finished()
        await watched.all_permits_back()
        assert not watched.worker.health().live
        assert not diary.inside.total()
    report = await Worker(client, app_of(do, slots=4), poll=0.1, drain=True, lease_seconds=5).run()
    assert report.lost == report.failed == 0

    async def all_done() -> bool:
        await Worker(client, app_of(do, slots=4), drain=True).run()
        return bool(await count(db, "select count(*) from sluicegate.job where state <> 'done'") == 0)

    await eventually_async(all_done, "what a worker could not tell of any more is done by another after its lease", 60)
    assert not diary.twice_at_once
    assert await count(db, NOT_ENDED) == 0
    assert await count(db, CHARGED) == 0
    outcomes = "select count(*) from sluicegate.attempt_end where outcome not in ('completed', 'released', 'lease_expired', 'reaped')"
    assert await count(db, outcomes) == 0
    await is_whole(client)

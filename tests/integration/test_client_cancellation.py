"""Cancelling whoever awaits a call leaves the pool whole and no job in the hands of nobody."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import psycopg
import pytest

from sluicegate import Client, FinishItem, NewJob, Unavailable
from tests.support.counts import rounds
from tests.support.waiting import eventually_async

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Connect = Callable[..., Awaitable[Connection]]

STUCK = "select count(*) from sluicegate.job where state = 'claimed'"
LEDGER = """
    select (select coalesce(sum(attempts_total), 0) from sluicegate.job), (select count(*) from sluicegate.attempt),
        (select count(*) from sluicegate.attempt_end)
"""


async def number(db: Connection, query: str) -> int:
    row = await (await db.execute(query)).fetchone()
    assert row is not None
    value: int = row[0]
    return value


def calling(verb: str) -> str:
    """Which backends of this database were last told to call ``verb``."""
    mine = "datname = current_database() and application_name = 'sluicegate'"
    return f"select pid from pg_stat_activity where {mine} and query like 'select sluicegate.{verb}%'"


def waiting(verb: str) -> str:
    """Which of them wait for a lock in that call."""
    return f"{calling(verb)} and wait_event_type = 'Lock'"


async def give_up_after(task: asyncio.Task[Any], turns: int) -> None:
    """Cancel a task after so many turns of the event loop, each of which lets everything else go one step on."""
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()


async def test_claims_cancelled_at_random_moments_lose_no_job_and_no_connection(dsn: str, db: Connection) -> None:
    jobs = 40
    kept: list[int] = []
    chance = random.Random(7)
    async with Client(dsn, max_size=4) as client:
        await client.enqueue_many([NewJob("q", index) for index in range(jobs)])

        async def one() -> None:
            task = asyncio.create_task(client.claim("q", n=chance.randint(1, 3)))
            turns = chance.choice((0, 1, 2, 5, 20, 60, 150, 400, 1000))
            await give_up_after(task, turns)
            with contextlib.suppress(asyncio.CancelledError):
                answer = await task
                kept.extend(claim.job_id for claim in answer.claims)
                # Given back, so that there is always something to claim.
                await client.finish_many([FinishItem.released(claim, started=False) for claim in answer.claims])

        total = rounds(200, 1000)
        for _ in range(total // 10):
            await asyncio.gather(*(one() for _ in range(10)))
        assert kept, "some claims must have been answered before they were cancelled"

        # The pool is whole: as many calls as it has connections run at once, again and again.
        for _ in range(5):
            await asyncio.gather(*(client.queue_stats() for _ in range(8)))

    assert await number(db, STUCK) == 0
    assert await number(db, "select count(*) from sluicegate.job where state = 'pending' and attempt = 0") == jobs
    row = await (await db.execute(LEDGER)).fetchone()
    assert row is not None
    claimed, attempts, ended = row
    assert claimed == attempts == ended > 0
    not_given_back = "select count(*) from sluicegate.attempt_end where outcome <> 'released' or started"
    assert await number(db, not_given_back) == 0
    in_the_background = "select count(*) from sluicegate.attempt_end where error like '%cancelled before its answer%'"
    assert await number(db, in_the_background) > 0, "some claims must have been cancelled after they were sent"


async def test_a_claim_cancelled_while_it_runs_is_finished_and_its_jobs_are_released(
    dsn: str, db: Connection, connect: Connect, wait_blocked: Callable[..., Awaitable[list[int]]]
) -> None:
    holder = await connect(autocommit=False)
    async with Client(dsn, max_size=1) as client:
        await client.enqueue("q", 1)
        await holder.execute("lock table sluicegate.attempt in access exclusive mode")
        task = asyncio.create_task(client.claim("q"))
        find = waiting("claim(")
        await eventually_async(lambda: _some(db, find), "the claim waits for the lock")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await holder.commit()
        await eventually_async(lambda: _some(db, "select 1 from sluicegate.attempt_end"), "the job was given back")
        answer = await client.claim("q")
        assert answer.claims[0].job.attempt == 1
        detail = await client.get_job(answer.claims[0].job_id)
    assert [(attempt.outcome, attempt.started) for attempt in detail.attempts] == [(None, None), ("released", False)]
    assert "cancelled before its answer" in (detail.attempts[1].error or "")


async def _some(db: Connection, query: str) -> bool:
    return (await (await db.execute(query)).fetchone()) is not None


async def test_closing_the_client_waits_for_what_cancelled_claims_brought(dsn: str, db: Connection) -> None:
    async with Client(dsn) as client:
        await client.enqueue_many([NewJob("q")] * 20)
        tasks = [asyncio.create_task(client.claim("q", n=5)) for _ in range(4)]
        for _ in range(30):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert await number(db, STUCK) == 0


async def test_a_claim_cancelled_while_it_waits_for_a_connection_is_never_sent(
    dsn: str, db: Connection, connect: Connect
) -> None:
    holder = await connect(autocommit=False)
    await holder.execute("lock table sluicegate.queue in access exclusive mode")
    async with Client(dsn, max_size=1) as client:
        enqueue = asyncio.create_task(client.enqueue("q"))
        waits = waiting("enqueue(")
        await eventually_async(lambda: _some(db, waits), "the only connection is in use")
        claim = asyncio.create_task(client.claim("q"))
        await give_up_after(claim, 20)
        with pytest.raises(asyncio.CancelledError):
            await claim
        await holder.commit()
        assert (await enqueue).created
    assert await number(db, "select count(*) from sluicegate.attempt") == 0


@pytest.mark.parametrize("verb", ["enqueue", "complete", "list_jobs"])
async def test_other_calls_are_finished_too_when_they_are_cancelled(
    dsn: str, db: Connection, connect: Connect, verb: str
) -> None:
    holder = await connect(autocommit=False)
    async with Client(dsn, max_size=1) as client:
        await client.enqueue("q")
        (claim,) = (await client.claim("q")).claims
        await holder.execute("lock table sluicegate.job in access exclusive mode")
        calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "enqueue": lambda: client.enqueue("q", "second"),
            "complete": lambda: client.complete(claim, "done"),
            "list_jobs": client.list_jobs,
        }
        task = asyncio.create_task(calls[verb]())
        waits = waiting(verb)
        await eventually_async(lambda: _some(db, waits), "the call waits for the lock")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        backend = await number(db, waits)
        await holder.commit()
        states = [row.state for row in (await client.list_jobs()).jobs]
        assert states == {"enqueue": ["pending", "claimed"], "complete": ["done"], "list_jobs": ["claimed"]}[verb]
        assert await number(db, calling("list_jobs")) == backend, "the same connection serves the next call"


async def test_a_timeout_round_a_claim_behaves_like_any_other_cancellation(dsn: str, db: Connection) -> None:
    async with Client(dsn) as client:
        await client.enqueue("q")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.claim("q"), timeout=0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await client.claim("q")
    assert await number(db, STUCK) == 0


async def test_a_full_pool_says_so_after_the_timeout(dsn: str, connect: Connect, db: Connection) -> None:
    holder = await connect(autocommit=False)
    async with Client(dsn, max_size=1, timeout=0.2) as client:
        await client.enqueue("q")
        await holder.execute("lock table sluicegate.job in access exclusive mode")
        slow = asyncio.create_task(client.list_jobs())
        waits = waiting("list_jobs(")
        await eventually_async(lambda: _some(db, waits), "the only connection is in use")
        with pytest.raises(Unavailable, match="every connection is in use") as caught:
            await client.queue_stats()
        assert caught.value.retriable
        await holder.commit()
        assert len((await slow).jobs) == 1


async def test_a_close_that_is_cancelled_closes_the_connections_all_the_same(
    dsn: str, db: Connection, connect: Connect
) -> None:
    ours = "datname = current_database() and application_name = 'sluicegate'"
    async with await connect(autocommit=False) as other:
        client = await Client(dsn, min_size=2).open()
        made = await client.enqueue("q")
        await other.execute("select from sluicegate.job where id = %s for update", (made.id,))
        cancelling = asyncio.create_task(client.cancel(made.id))

        async def blocked() -> int:
            return await number(db, f"select count(*) from pg_stat_activity where {ours} and wait_event_type = 'Lock'")

        await eventually_async(blocked, "a call that waits")
        closing = asyncio.create_task(client.close())
        await give_up_after(closing, 20)
        with pytest.raises(asyncio.CancelledError):
            await closing
        await other.rollback()
        assert (await cancelling).state == "cancelled"

    async def gone() -> bool:
        return await number(db, f"select count(*) from pg_stat_activity where {ours}") == 0

    await eventually_async(gone, "no connection of the client")


async def test_an_open_that_is_cancelled_leaves_nothing_behind(dsn: str, db: Connection) -> None:
    for turns in (0, 1, 2, 3, 5, 8, 13, 50, 200, 1000):
        client = Client(dsn)
        opening = asyncio.create_task(client.open())
        await give_up_after(opening, turns)
        with contextlib.suppress(asyncio.CancelledError):
            await opening
        await client.close()

    async def gone() -> bool:
        ours = "datname = current_database() and application_name = 'sluicegate'"
        return await number(db, f"select count(*) from pg_stat_activity where {ours}") == 0

    await eventually_async(gone, "no connection of any client")

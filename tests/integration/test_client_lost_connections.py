"""Connections cut right after COMMIT, or before anything was sent: nothing happens twice, and nothing is lost."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from sluicegate import Client, FinishItem, NewJob, SyncClient, Unavailable

Connection = psycopg.AsyncConnection[tuple[Any, ...]]

READY = b"Z\x00\x00\x00\x05I"  # ReadyForQuery, idle: the transaction has been committed


class Cutter:
    """A proxy before PostgreSQL that cuts one connection at the next query that holds ``needle``.

    ``before`` it is passed on; otherwise after the server has committed it, with the answer thrown away.
    """

    def __init__(self, server: Path, place: Path) -> None:
        self._server = server
        self.place = place
        self.needle: bytes | None = None
        self.before = False
        self.cuts = 0
        self.cut = asyncio.Event()
        self.handlers: set[asyncio.Task[None]] = set()

    def arm(self, verb: str, *, before: bool = False) -> None:
        self.needle, self.before, self.cuts = f"sluicegate.{verb}(".encode(), before, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self.handlers.add(handler)
        upstream, upwriter = await asyncio.open_unix_connection(self._server / ".s.PGSQL.5432")
        doomed = asyncio.Event()

        async def requests() -> None:
            while data := await reader.read(1 << 20):
                if self.needle is not None and self.needle in data:
                    self.needle = None
                    self.cuts += 1
                    self.cut.set()
                    if self.before:
                        return
                    doomed.set()
                upwriter.write(data)
                await upwriter.drain()

        async def answers() -> None:
            kept = b""
            while data := await upstream.read(1 << 20):
                if doomed.is_set():
                    kept += data
                    if kept.endswith(READY):
                        return
                else:
                    writer.write(data)
                    await writer.drain()

        pumps = {asyncio.create_task(requests()), asyncio.create_task(answers())}
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, upwriter):
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()


@pytest.fixture
async def cutter(dsn: str) -> AsyncIterator[Cutter]:
    server = Path(urlsplit(dsn).query.removeprefix("host="))
    place = Path(tempfile.mkdtemp(prefix="sluicegate-cut-", dir="/tmp"))
    proxy = Cutter(server, place)
    listener = await asyncio.start_unix_server(proxy.serve, place / ".s.PGSQL.5432")
    yield proxy
    listener.close()
    await asyncio.gather(*proxy.handlers)
    shutil.rmtree(place)


def through(cutter: Cutter, dsn: str) -> str:
    parts = urlsplit(dsn)
    return parts._replace(query=f"host={cutter.place}").geturl()


@pytest.fixture(params=["async", "sync"])
async def queue(request: pytest.FixtureRequest, cutter: Cutter, dsn: str) -> AsyncIterator[Any]:
    if request.param == "async":
        async with Client(through(cutter, dsn), max_size=2) as client:
            yield client
        return
    sync_client = await asyncio.to_thread(SyncClient(through(cutter, dsn), max_size=2).open)

    class InThreads:
        def __getattr__(self, name: str) -> Any:
            async def call(*args: Any, **kwargs: Any) -> Any:
                return await asyncio.to_thread(getattr(sync_client, name), *args, **kwargs)

            return call

    yield InThreads()
    await asyncio.to_thread(sync_client.close)


async def counts(db: Connection) -> tuple[int, int, int]:
    """Jobs, attempts, ended attempts."""
    row = await (
        await db.execute(
            "select (select count(*) from sluicegate.job), (select count(*) from sluicegate.attempt),"
            " (select count(*) from sluicegate.attempt_end)"
        )
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


@pytest.mark.parametrize("before", [False, True], ids=["after the commit", "before it was sent"])
async def test_a_cut_enqueue_is_made_once(queue: Any, cutter: Cutter, db: Connection, before: bool) -> None:
    cutter.arm("enqueue", before=before)
    made = await queue.enqueue("q", {"n": 1})
    assert (cutter.cuts, made.created) == (1, True)
    cutter.arm("enqueue_many", before=before)
    many = await queue.enqueue_many([NewJob("q", index) for index in range(10)])
    assert (cutter.cuts, len(many), many.replayed) == (1, 10, not before)
    assert await counts(db) == (11, 0, 0)


@pytest.mark.parametrize("before", [False, True], ids=["after the commit", "before it was sent"])
async def test_a_cut_claim_opens_one_attempt_and_brings_a_token_that_works(
    queue: Any, cutter: Cutter, db: Connection, before: bool
) -> None:
    jobs = await queue.enqueue_many([NewJob("q", index) for index in range(5)])
    cutter.arm("claim", before=before)
    answer = await queue.claim("q", n=3)
    assert (cutter.cuts, len(answer.claims), answer.replayed) == (1, 3, not before)
    assert await counts(db) == (5, 3, 0)
    assert [(await queue.complete(claim)).status for claim in answer.claims] == ["ok"] * 3

    cutter.arm("claim_job", before=before)
    claim = await queue.claim_job(jobs.jobs[3].id)
    assert (cutter.cuts, (await queue.complete(claim)).status) == (1, "ok")
    assert await counts(db) == (5, 4, 4)


@pytest.mark.parametrize("before", [False, True], ids=["after the commit", "before it was sent"])
@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
async def test_a_cut_finish_is_made_once(queue: Any, cutter: Cutter, db: Connection, verb: str, before: bool) -> None:
    await queue.enqueue("q")
    (claim,) = (await queue.claim("q")).claims
    cutter.arm(verb, before=before)
    finish = await (queue.fail(claim, "e", retry=False) if verb == "fail" else getattr(queue, verb)(claim))
    assert (cutter.cuts, finish.status, finish.replayed) == (1, "ok", not before)
    assert finish.state == {"complete": "done", "fail": "failed", "release": "pending"}[verb]
    assert await counts(db) == (1, 1, 1)


async def test_a_cut_claim_that_carries_finishes_makes_each_once(queue: Any, cutter: Cutter, db: Connection) -> None:
    await queue.enqueue_many([NewJob("q")] * 4)
    claims = (await queue.claim("q", n=2)).claims
    cutter.arm("claim")
    answer = await queue.claim("q", n=2, finished=[FinishItem.completed(claim) for claim in claims])
    assert cutter.cuts == 1
    assert [finish.status for finish in answer.finished] == ["ok", "ok"]
    assert all(finish.replayed for finish in answer.finished)
    assert len(answer.claims) == 2
    assert await counts(db) == (4, 4, 2)


async def test_a_cut_heartbeat_cancel_and_read_are_simply_repeated(queue: Any, cutter: Cutter) -> None:
    await queue.enqueue("q")
    (claim,) = (await queue.claim("q")).claims
    for verb, call in (
        ("heartbeat", lambda: queue.heartbeat(claim)),
        ("heartbeat_many", lambda: queue.heartbeat_many([claim])),
        ("cancel", lambda: queue.cancel(claim.job_id)),
        ("get_job", lambda: queue.get_job(claim.job_id)),
        ("reap", queue.reap),
    ):
        cutter.arm(verb)
        assert await call() is not None
        assert cutter.cuts == 1, verb


async def test_a_cut_retry_now_is_reported_as_unknown_because_repeating_it_would_deny_it(
    queue: Any, cutter: Cutter
) -> None:
    made = await queue.enqueue("q")
    await queue.cancel(made.id)
    cutter.arm("retry")
    with pytest.raises(Unavailable) as caught:
        await queue.retry(made.id)
    assert caught.value.outcome_unknown
    assert (await queue.get_job(made.id)).job.state == "pending"


async def test_without_retries_a_cut_is_raised_and_the_caller_repeats_with_its_own_request_id(
    cutter: Cutter, dsn: str, db: Connection
) -> None:
    async with Client(through(cutter, dsn), retries=False) as client:
        cutter.arm("enqueue")
        with pytest.raises(Unavailable, match="lost during the call") as caught:
            await client.enqueue("q", request_id="mine")
        assert caught.value.outcome_unknown
        await client.enqueue("q", request_id="mine")
        cutter.arm("claim")
        with pytest.raises(Unavailable):
            await client.claim("q", request_id="mine too")
        answer = await client.claim("q", request_id="mine too")
        assert answer.replayed
        (claim,) = answer.claims
        cutter.arm("complete")
        with pytest.raises(Unavailable):
            await client.complete(claim)
        assert (await client.complete(claim)).replayed
        rows = await (await db.execute("select count(*) from sluicegate.request")).fetchone()
        assert rows == (2,)
    assert await counts(db) == (1, 1, 1)


async def test_a_claim_cancelled_and_cut_at_once_is_left_to_its_lease(cutter: Cutter, dsn: str, db: Connection) -> None:
    async with Client(through(cutter, dsn)) as client:
        await client.enqueue("q")
        cutter.arm("claim")
        task = asyncio.create_task(client.claim("q", lease_seconds=1))
        await cutter.cut.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await db.execute("update sluicegate.job set lease_expires_at = clock_timestamp() where state = 'claimed'")
    async with Client(dsn) as client:
        (claim,) = (await client.claim("q")).claims
        assert (await client.complete(claim)).status == "ok"


async def test_a_server_that_dropped_every_connection_is_used_again_at_once(queue: Any, db: Connection) -> None:
    await asyncio.gather(*(queue.queue_stats() for _ in range(4)))
    for _ in range(3):
        await db.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'sluicegate'"
        )
        made = await queue.enqueue("q")
        (claim,) = (await queue.claim("q")).claims
        assert claim.job_id == made.id
        assert (await queue.complete(claim)).status == "ok"
    assert await counts(db) == (3, 3, 3)

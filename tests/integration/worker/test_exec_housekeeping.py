"""What every worker does beside its jobs."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from sluicegate import Client, NotFound
from sluicegate.model import Reaped
from sluicegate.worker import housekeeping
from sluicegate.worker.exec import StopRequest, WorkerEvent, run_exec
from tests.conftest import Connection
from tests.integration.worker.support import QUEUE
from tests.support.servers import Server
from tests.support.waiting import eventually_async


@pytest.fixture
async def worker_dsn(db: Connection, server: Server) -> AsyncIterator[str]:
    """The test's database, as a role that may work and nothing else."""
    role = f"worker_{uuid.uuid4().hex}"
    await db.execute(f"create role {role} login password 'x' in role sluicegate_worker")
    yield server.dsn(db.info.dbname, user=role, password="x")
    await db.execute(f"drop role {role}")


async def lapsed(client: Client, db: Connection) -> int:
    """A job at its attempt cap whose holder is gone, in a queue that nobody else claims from."""
    job = await client.enqueue("another", max_attempts=1)
    await client.claim("another")
    await db.execute("update sluicegate.job set lease_expires_at = sluicegate.clock() - interval '1 second'")
    return job.id


async def test_lapsed_claims_at_their_cap_become_dead_letters(client: Client, db: Connection) -> None:
    job_id = await lapsed(client, db)
    stop = StopRequest()
    run = asyncio.create_task(run_exec(client, QUEUE, ["true"], stop=stop))

    async def dead() -> bool:
        return (await client.get_job(job_id)).job.dead_letter

    await eventually_async(dead, "a dead letter")
    stop.ask()
    await run
    assert (await client.get_job(job_id)).attempts[0].outcome == "reaped"


async def test_a_worker_leaves_the_claims_of_other_scopes_to_theirs(
    dsn: str, client: Client, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "REAP_SECONDS", 0.02)
    await db.execute("insert into sluicegate.endpoint (owner_id, slug) select id, 'other' from sluicegate.owner")
    async with Client(dsn, scope="endpoint:other") as other:
        theirs = await lapsed(other, db)
        ours = await lapsed(client, db)
        stop = StopRequest()
        run = asyncio.create_task(run_exec(client, QUEUE, ["true"], stop=stop))

        async def dead() -> bool:
            return (await client.get_job(ours)).job.dead_letter

        await eventually_async(dead, "a dead letter")
        # Whoever reaps all of them would have taken both in the one call.
        assert (await other.get_job(theirs)).job.state == "claimed"
        stop.ask()
        await run
        assert (await client.reap()).dead_lettered == 0
        assert (await other.reap()).dead_lettered == 1


async def test_what_retention_lets_go_is_pruned_by_a_worker(
    worker_dsn: str, client: Client, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_FIRST_PRUNE", 0.0)
    job = await client.enqueue(QUEUE)
    await run_exec(client, QUEUE, ["true"], drain=True)
    await db.execute("update sluicegate.job set finished_at = finished_at - interval '40 days'")
    async with Client(worker_dsn) as worker:
        stop = StopRequest()
        events: list[WorkerEvent] = []
        run = asyncio.create_task(run_exec(worker, QUEUE, ["true"], stop=stop, on_event=events.append))

        async def gone() -> bool:
            try:
                await client.get_job(job.id)
            except NotFound:
                return True
            return False

        await eventually_async(gone, "the job of long ago is gone")
        stop.ask()
        await run
    assert [event.kind for event in events if event.kind != "waiting"] == ["stopping"]


async def test_a_refusal_is_told_once_and_work_goes_on(
    worker_dsn: str, client: Client, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_FIRST_PRUNE", 0.0)
    monkeypatch.setattr(housekeeping, "REAP_SECONDS", 0.02)
    await db.execute("revoke execute on function sluicegate.prune, sluicegate.reap from sluicegate_worker")
    tried = 0

    class Counting(Client):
        async def reap(self, *, limit: int = 1000) -> Reaped:
            nonlocal tried
            tried += 1
            return await super().reap(limit=limit)

    async with Counting(worker_dsn) as worker:
        stop = StopRequest()
        events: list[WorkerEvent] = []
        run = asyncio.create_task(run_exec(worker, QUEUE, ["true"], stop=stop, on_event=events.append))

        async def often() -> bool:
            return tried > 3

        await eventually_async(often, "several refusals")
        job = await client.enqueue(QUEUE)

        async def done() -> bool:
            return (await client.get_job(job.id)).job.state == "done"

        await eventually_async(done, "the job")
        stop.ask()
        assert (await run).done == 1
    (told,) = (event.message for event in events if event.kind == "housekeeping")
    assert told is not None
    assert "permission denied for function reap" in told

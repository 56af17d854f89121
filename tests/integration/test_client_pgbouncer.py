"""The client works through pgbouncer in transaction mode, where every call may meet another server connection."""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg
import pytest

from sluicegate import Client, NewJob, SyncClient
from tests.support.requirements import find_program, requires
from tests.support.waiting import eventually

Connection = psycopg.AsyncConnection[tuple[Any, ...]]

CONFIG = """\
[databases]
pooled = {target}
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = {place}
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 100
logfile = {place}/pgbouncer.log
pidfile = {place}/pgbouncer.pid
"""


def start(dsn: str, place: Path) -> subprocess.Popen[bytes]:
    """A pgbouncer before ``dsn`` with two server connections, as another user where this one is root."""
    parts = urlsplit(dsn)
    target = {
        "host": parse_qs(parts.query)["host"][0],
        "dbname": parts.path.lstrip("/"),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
    }
    config = place / "pgbouncer.ini"
    config.write_text(CONFIG.format(target=" ".join(f"{name}={value}" for name, value in target.items()), place=place))
    program = find_program("pgbouncer")
    assert program is not None
    command = [program, str(config)]
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in (place, config):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        command = [program, "-u", "nobody", str(config)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def pooled(dsn: str) -> Iterator[str]:
    """A DSN that goes through a pgbouncer of its own."""
    place = Path(tempfile.mkdtemp(prefix="sluicegate-pgb-", dir="/tmp"))
    address = f"host={place} port=6432 dbname=pooled user=anyone"
    process = start(dsn, place)

    def answers() -> bool:
        assert process.poll() is None, (place / "pgbouncer.log").read_text()
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            return False
        return True

    try:
        eventually(answers, "pgbouncer accepts connections")
        yield address
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(place)


async def run_jobs(client: Client, jobs: int) -> list[int]:
    done: list[int] = []

    async def work() -> None:
        while not (answer := await client.claim("q", n=3)).empty:
            for claim in answer.claims:
                await client.heartbeat(claim)
                await client.complete(claim, {"n": claim.job.payload})
                done.append(claim.job.payload)

    await client.enqueue_many([NewJob("q", index) for index in range(jobs)])
    await asyncio.gather(*(work() for _ in range(8)))
    return done


@requires("pgbouncer")
async def test_eight_workers_share_two_pooled_connections(pooled: str, db: Connection) -> None:
    async with Client(pooled, min_size=4, max_size=8) as client:
        assert sorted(await run_jobs(client, 150)) == list(range(150))
        stats = (await client.queue_stats()).queues
    assert [(counts.queue, counts.done) for counts in stats] == [("q", 150)]
    row = await (await db.execute("select count(*) from sluicegate.attempt")).fetchone()
    assert row == (150,)
    servers = "select count(*) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"
    row = await (await db.execute(servers)).fetchone()
    assert row is not None
    assert row[0] <= 2


@requires("pgbouncer")
async def test_the_synchronous_client_works_through_it_as_well(pooled: str) -> None:
    def life() -> str | None:
        with SyncClient(pooled) as client:
            made = client.enqueue("q", "hello", dedup_key="k")
            (claim,) = client.claim("q").claims
            assert claim.job_id == made.id
            client.fail(claim, "once", retry_in_seconds=0)
            (claim,) = client.claim("q").claims
            return client.complete(claim).state

    assert await asyncio.to_thread(life) == "done"


@requires("pgbouncer")
async def test_cancelled_calls_leave_pooled_connections_usable(pooled: str, db: Connection) -> None:
    async with Client(pooled, max_size=4) as client:
        await client.enqueue_many([NewJob("q")] * 10)
        for turns in range(0, 120, 4):
            task = asyncio.create_task(client.claim("q"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            answer = (await asyncio.gather(task, return_exceptions=True))[0]
            for claim in getattr(answer, "claims", ()):
                await client.release(claim, started=False)
    row = await (
        await db.execute("select count(*) from sluicegate.job where state = 'pending' and attempt = 0")
    ).fetchone()
    assert row == (10,)

"""A client without a DSN has a PostgreSQL of its own."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sluicegate import Client, SyncClient
from sluicegate.embedded import attach, status, stop
from sluicegate.sql.migrate import MigrationReport, migrate


@pytest.fixture
def data_dir() -> Iterator[Path]:
    # Root's server runs as another user, who has to get there.
    place = Path(tempfile.mkdtemp(prefix="sluicegate-own-", dir="/tmp"))
    place.chmod(0o755)
    yield place / "data"
    stop(place / "data", force=True)
    shutil.rmtree(place)


async def test_it_is_made_migrated_shared_and_brought_back_when_it_was_killed(data_dir: Path) -> None:
    async with Client(data_dir=data_dir) as client:
        made = await client.enqueue("q", "hello")
        with SyncClient(data_dir=data_dir) as other:
            (claim,) = other.claim("q").claims
            assert claim.job_id == made.id
        supervisor = status(data_dir).supervisor_pid
        assert supervisor is not None
        os.kill(supervisor, signal.SIGKILL)
        assert (await client.complete(claim)).state == "done"
        assert status(data_dir).supervisor_pid != supervisor


async def test_only_a_schema_that_does_not_fit_is_migrated(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    migrated = 0

    def counted(*arguments: Any) -> MigrationReport:
        nonlocal migrated
        migrated += 1
        return migrate(*arguments)

    monkeypatch.setattr("sluicegate.ops.database.migrate", counted)
    for _ in range(2):
        async with Client(data_dir=data_dir) as client:
            await client.enqueue("q")
    assert migrated == 1
    with attach(data_dir) as attachment, psycopg.connect(attachment.dsn) as conn:
        conn.execute("drop function sluicegate.prune")
    async with Client(data_dir=data_dir) as client:
        await client.prune()
    assert migrated == 2


async def test_opening_it_may_be_given_up_and_tried_again(data_dir: Path) -> None:
    client = Client(data_dir=data_dir)
    opening = asyncio.create_task(client.open())
    for _ in range(5):
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await client.close()
    async with client:
        assert (await client.enqueue("q")).created

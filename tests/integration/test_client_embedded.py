"""A client without a DSN has a PostgreSQL of its own."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate import Client, SyncClient
from sluicegate.embedded import status, stop


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

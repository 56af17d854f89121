"""A handler that blocks its worker's event loop for longer than the lease: fenced, and told by the probe."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate import Client, Conflict, Context
from sluicegate.model import Lease
from tests.conftest import Connection
from tests.faults.fleet import count
from tests.faults.watched import QUEUE, Watched, app_of, probed
from tests.support.waiting import eventually_async

MODULE = """
import time
from pathlib import Path
from sluicegate import App, Context

app = App({"q": {}}, global_max_workers=2)

@app.handler(queue="q", kind="")
async def do(context: Context, payload: str) -> str:
    if payload == "block" and context.attempt == 1:
        Path("token.part").write_text(context.lease_token)
        Path("token.part").rename("token")
        while not Path("go").exists():
            time.sleep(0.01)
    return f"{payload} by the blocked worker"
"""


class Blocking:
    """``sluicegate work`` with a probe, and a handler that blocks it until the file ``go`` is there."""

    def __init__(self, place: Path, dsn: str) -> None:
        (place / "blocking.py").write_text(MODULE)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.file = place / "health.json"
        self._told = place / "told.jsonl"
        program = Path(sys.executable).with_name("sluicegate")
        with self._told.open("wb") as output, (place / "errors").open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    program,
                    *("work", "blocking:app", "--lease", "2", "--json"),
                    *("--health", self.address, "--health-file", self.file),
                ],
                cwd=place,
                env=os.environ | {"SLUICEGATE_DSN": dsn},
                stdout=output,
                stderr=errors,
            )
        self._errors = place / "errors"

    def told(self) -> str:
        return self._told.read_text() + self._errors.read_text()

    async def says(self, path: str, status: int) -> Any:
        async def look() -> Any:
            found, body = await probed(self.address, path)
            return body if found == status else None

        return await eventually_async(look, f"{path} answers {status}", timeout=60)


@pytest.fixture
def blocking(tmp_path: Path, dsn: str) -> Iterator[Blocking]:
    made = Blocking(tmp_path, dsn)
    yield made
    made.process.kill()
    made.process.wait()


@pytest.mark.slow
async def test_a_worker_whose_event_loop_is_blocked_beyond_the_lease_is_fenced(
    client: Client, db: Connection, blocking: Blocking, tmp_path: Path
) -> None:
    async def do(context: Context, payload: str) -> str:
        return f"{payload} by another in attempt {context.attempt}"

    await blocking.says("/ready", 200)
    job = await client.enqueue(QUEUE, "block")
    await eventually_async(lambda: is_there(tmp_path / "token"), "it is blocked", timeout=60)
    token = (tmp_path / "token").read_text()
    async with Watched(client, app_of(do)) as other:
        await other.told("done")
        assert (await client.get_job(job.id)).job.result == "block by another in attempt 2"
        body = await blocking.says("/live", 503)
        assert (body["live"], body["ready"]) == (False, False)
        assert "event loop" in body["fault"]
        with pytest.raises(Conflict):
            await client.complete(Lease(job.id, token), "late")
    (tmp_path / "go").touch()
    for path in ("/live", "/ready", "/health"):
        body = await blocking.says(path, 200)
    assert (body["running"], body["queues"][0]["available"]) == (0, 2), "its permit is back"
    await eventually_async(lambda: has_told(blocking, "lost"), "it knows that it has lost the job")
    assert "the worker's event loop stood still for more than" in blocking.told()
    assert "Running here: q/." in blocking.told(), "and who may have done that"
    after = await client.enqueue(QUEUE, "more")
    await eventually_async(lambda: is_done(client, after.id), "it works on")
    assert (await client.get_job(after.id)).job.result == "more by the blocked worker"

    found = await client.get_job(job.id)
    assert found.job.result == "block by another in attempt 2"
    assert [attempt.outcome for attempt in found.attempts] == ["completed", "lease_expired"]
    assert await count(db, "select count(*) from sluicegate.attempt_end where outcome = 'completed'") == 2
    assert await count(db, "select count(*) from sluicegate.late_call") == 1, (
        "the test's own; the worker has not even tried"
    )
    blocking.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(blocking.process.wait, 60) == 0


async def is_there(path: Path) -> bool:
    return path in path.parent.iterdir()


async def has_told(blocking: Blocking, word: str) -> bool:
    return word in blocking.told()


async def is_done(client: Client, job_id: int) -> bool:
    return (await client.get_job(job_id)).job.state == "done"

"""Others can ask a worker how it is: over HTTP, or by a file."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from sluicegate import Client, InvalidArgument, Worker
from sluicegate.worker import probe
from sluicegate.worker.probe import health_file, http_probe
from tests.integration.worker.test_worker_life import app_of
from tests.support.waiting import eventually_async


def asked(address: tuple[str, int], path: str) -> tuple[int, Any]:
    try:
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        with urllib.request.urlopen(f"http://{host}:{address[1]}{path}", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_a_probe_says_whether_it_lives_and_is_ready(
    client: Client, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def do() -> None: ...

    worker = Worker(client, app_of(do))
    with http_probe(worker.health, f"{host}:0") as address:
        assert (await asyncio.to_thread(asked, address, "/live"))[0] == 503
        await worker.start()
        await worker.started()
        for path in ("/live", "/ready", "/health"):
            status, body = await asyncio.to_thread(asked, address, path)
            assert (status, body["state"], body["queues"][0]["queue"]) == (200, "started", "q")
        assert (await asyncio.to_thread(asked, address, "/nothing"))[0] == 404
        # The loop is blocked by waiting here for the answer of a thread that asks it.
        monkeypatch.setattr(probe, "_PATIENCE", 0.1)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(asked(address, "/live")))
        thread.start()
        thread.join()
        assert (found[0][0], found[0][1]["live"]) == (503, False)
        assert "has not answered for 0.1 s" in found[0][1]["fault"]
        await worker.stop()
        assert (await asyncio.to_thread(asked, address, "/ready"))[0] == 503


async def test_the_file_is_whole_at_any_moment_and_goes_with_the_worker(client: Client, tmp_path: Path) -> None:
    async def do() -> None: ...

    path = tmp_path / "health.json"
    worker = Worker(client, app_of(do))
    async with health_file(worker.health, path):
        assert await says(path, "new")
        await worker.start()
        await eventually_async(lambda: says(path, "started"), "the file follows")
        await worker.stop()
    assert await asyncio.to_thread(lambda: list(tmp_path.iterdir())) == []
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for unusable in (tmp_path / "no" / "folder", tmp_path, pipe):
        with pytest.raises(InvalidArgument) as refused:
            async with health_file(worker.health, unusable):
                pass
        assert refused.value.field == "health_file"
    assert pipe.is_fifo()
    assert not list(tmp_path.parent.glob(f".{tmp_path.name}.*"))


async def says(path: Path, state: str) -> bool:
    written = await asyncio.to_thread(path.read_text)
    return bool(json.loads(written)["state"] == state)


async def test_an_address_that_is_taken_is_refused(client: Client) -> None:
    async def do() -> None: ...

    health = Worker(client, app_of(do)).health
    with (
        http_probe(health, "127.0.0.1:0") as (host, port),
        pytest.raises(InvalidArgument, match="Cannot listen") as refused,
        http_probe(health, f"{host}:{port}"),
    ):
        pass
    assert refused.value.field == "health"


@pytest.mark.parametrize(
    "address", ["nowhere", "127.0.0.1:x", "127.0.0.1:70000", ":-1", ":8099", "[]:0", "\udcff:0", "\0:0"]
)
async def test_an_address_that_is_none_is_refused(client: Client, address: str) -> None:
    async def do() -> None: ...

    with pytest.raises(InvalidArgument) as refused, http_probe(Worker(client, app_of(do)).health, address):
        pass
    assert refused.value.field == "health"

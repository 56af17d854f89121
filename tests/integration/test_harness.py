"""The ground the tests stand on: servers, databases, and what a run says at its end."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sluicegate import Client
from tests.support.servers import ROOT, Server, is_running
from tests.support.waiting import eventually, eventually_async

Connect = Callable[..., Awaitable[psycopg.AsyncConnection[tuple[Any, ...]]]]
RUN_OF_ITS_OWN = [sys.executable, "-m", "pytest", "-p", "tests.support.reporting", "-p", "no:cacheprovider", "-c"]


def run_tests(place: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (place / "test_inner.py").write_text(text)
    (place / "pytest.ini").write_text("[pytest]\nmarkers = requires\nasyncio_default_fixture_loop_scope = function\n")
    return subprocess.run(
        [*RUN_OF_ITS_OWN, str(place / "pytest.ini"), "--import-mode=importlib", str(place)],
        cwd=ROOT,
        env={**os.environ, "SLUICEGATE_TEST_FULL": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.both_versions
def test_an_empty_database_has_no_schema_and_the_version_asked_for(empty_dsn: str, server: Server) -> None:
    with psycopg.connect(empty_dsn) as connection:
        assert connection.execute("select to_regnamespace('sluicegate')").fetchone() == (None,)
        assert connection.info.server_version // 10000 == server.major


@pytest.mark.parametrize("turn", [1, 2])
async def test_every_test_has_a_migrated_database_of_its_own(db: psycopg.AsyncConnection[Any], turn: int) -> None:
    found = await (await db.execute("select to_regclass('sluicegate.job'), to_regclass('public.mine')")).fetchone()
    await db.execute("create table public.mine ()")
    assert found == ("sluicegate.job", None), turn


@pytest.mark.durable
def test_a_durable_server_syncs(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        settings = connection.execute("select current_setting('fsync'), current_setting('full_page_writes')").fetchone()
    assert settings == ("on", "on")


async def test_wait_blocked_tells_who_blocks(
    connect: Connect, wait_blocked: Callable[..., Awaitable[list[int]]]
) -> None:
    holder, waiter = await connect(autocommit=False), await connect(autocommit=False)
    await holder.execute("select pg_advisory_xact_lock(1)")
    async with waiter.pipeline():
        await waiter.execute("select pg_advisory_xact_lock(1)")
        blockers = await wait_blocked(waiter.info.backend_pid, by=holder.info.backend_pid)
        await holder.rollback()
    assert blockers == [holder.info.backend_pid]


async def test_waiting_in_vain_names_what_was_awaited() -> None:
    async def never() -> bool:
        return False

    with pytest.raises(AssertionError, match="in vain: the moon"):
        eventually(lambda: 0, "the moon", timeout=0.05)
    with pytest.raises(AssertionError, match="in vain: the moon"):
        await eventually_async(never, "the moon", timeout=0.05)


LACKING = """
from tests.support.requirements import requires

@requires("pgbouncer")
def test_pooled():
    assert False, "must not run"

def test_other():
    assert True
"""


def test_what_cannot_run_is_listed_with_its_package(tmp_path: Path) -> None:
    done = run_tests(tmp_path, LACKING, SLUICEGATE_TEST_LACKS="pgbouncer")
    assert done.returncode == 0
    assert "Not run here, and what would allow it" in done.stdout
    assert "pgbouncer: 1 test. To run them: apt-get install pgbouncer" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout.splitlines()[-1]


def test_in_a_full_run_what_cannot_run_fails(tmp_path: Path) -> None:
    done = run_tests(tmp_path, LACKING, SLUICEGATE_TEST_LACKS="pgbouncer", SLUICEGATE_TEST_FULL="1")
    assert done.returncode == 1
    assert "apt-get install pgbouncer" in done.stdout
    assert "1 passed, 1 error" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "text",
    [
        "import pytest\n\ndef test_left_out():\n    pytest.skip('no time')\n",
        "import pytest\n\npytest.skip('no time', allow_module_level=True)\n",
        "import pytest\n\n@pytest.mark.skip('no time')\ndef test_left_out():\n    assert True\n",
    ],
)
def test_in_a_full_run_any_skip_fails(tmp_path: Path, text: str) -> None:
    done = run_tests(tmp_path, text, SLUICEGATE_TEST_FULL="1")
    assert done.returncode != 0
    assert "skipped, which a full run does not allow: no time" in done.stdout
    assert "no time" in run_tests(tmp_path, text).stdout.partition("Not run here")[2]


DEADLOCK = """
import threading
import psycopg
from tests.support.servers import TestRun

def test_two_transactions_lock_in_opposite_order():
    server = TestRun.current().server("18")
    first, second = (psycopg.connect(server.dsn("postgres")) for _ in range(2))
    with first, second:
        first.execute("select pg_advisory_xact_lock(1)")
        second.execute("select pg_advisory_xact_lock(2)")
        other = threading.Thread(target=lambda: attempt(second, 1))
        other.start()
        attempt(first, 2)
        other.join()
    assert True

def attempt(connection, key):
    try:
        connection.execute("select pg_advisory_xact_lock(%s)", [key])
    except psycopg.errors.DeadlockDetected:
        connection.rollback()
    else:
        connection.rollback()
"""


def test_a_deadlock_in_a_server_log_fails_the_run_that_passed_otherwise(tmp_path: Path) -> None:
    done = run_tests(tmp_path, DEADLOCK)
    for kept in set(re.findall(r"/tmp/sluicegate-test-\w+", done.stdout)):
        shutil.rmtree(kept)
    assert done.returncode == 1
    assert "deadlock detected" in done.stdout
    assert "1 passed, 1 error" in done.stdout.splitlines()[-1]


HANGING = """
import time
from pathlib import Path
from tests.support.servers import TestRun

def test_hangs():
    server = TestRun.current().server("18")
    Path(__file__).with_name("unfinished").write_text(f"{server.pid} {server.place}")
    Path(__file__).with_name("unfinished").rename(Path(__file__).with_name("started"))
    time.sleep(600)
"""


def test_killing_the_runner_leaves_no_server_behind(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(HANGING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    runner = subprocess.Popen(
        [*RUN_OF_ITS_OWN, str(tmp_path / "pytest.ini"), "--import-mode=importlib", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    started = tmp_path / "started"
    eventually(lambda: started.exists() or runner.poll() is not None, "the inner run starts its server", timeout=60)
    pid, place = started.read_text().split()
    began = time.monotonic()
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    eventually(lambda: not is_running(int(pid)), "the server ends")
    eventually(lambda: not Path(place, "data").exists(), "its data directory is removed")
    eventually(lambda: not Path(place, "binaries").exists(), "its copy of the binaries is removed")
    shutil.rmtree(Path(place).parent)
    assert time.monotonic() - began < 30


@pytest.mark.both_versions
async def test_the_client_works_on_the_tests_own_database(client: Client, db: psycopg.AsyncConnection[Any]) -> None:
    job = await client.enqueue("letters", {"to": "you"})
    assert await (await db.execute("select id, state from sluicegate.job")).fetchall() == [(job.id, "pending")]

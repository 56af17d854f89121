"""Fixtures for every test. ``dsn``, ``db`` and ``client`` each give a fresh, migrated database of its own.

A test marked ``both_versions`` runs on the embedded PostgreSQL and on Debian's PostgreSQL 15; in a full run all of
``tests/sql`` does, but for what judges a test and not a server (``one_version``). ``SLUICEGATE_TEST_PG=15`` moves the whole run to 15.
"""

import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.counts import full
from tests.support.databases import Databases
from tests.support.requirements import requires
from tests.support.servers import Server, TestRun
from tests.support.waiting import wait_blocked as wait_until_blocked

if TYPE_CHECKING:
    from sluicegate import Client

pytest_plugins = ["tests.support.reporting"]


def pytest_configure() -> None:
    """Signals as in a terminal: a run in the background starts with some ignored or blocked, and its children would too."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) == signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Connect = Callable[..., Awaitable[Connection]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start, stop and kill processes depend on the machine's mood: in a full run they have two more tries.

    The summary counts each as ``rerun``. What races or judges a limit by the database alone has one try.
    """
    if not full():
        return
    for item in items:
        if {"acceptance", "integration", "faults"} & set(item.path.relative_to(Path(__file__).parent).parts):
            item.add_marker(pytest.mark.flaky(reruns=2))


def _only_version() -> str | None:
    return os.environ.get("SLUICEGATE_TEST_PG") or None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server_kind" not in metafunc.fixturenames:
        return
    versions = [_only_version() or "18"]
    in_sql = metafunc.definition.path.is_relative_to(metafunc.config.rootpath / "tests" / "sql")
    wants_both = metafunc.definition.get_closest_marker("both_versions") is not None or (full() and in_sql)
    if wants_both and _only_version() is None and metafunc.definition.get_closest_marker("one_version") is None:
        versions.append("15")
    suffix = "-durable" if metafunc.definition.get_closest_marker("durable") else ""
    params = [
        pytest.param(
            f"{version}{suffix}", id=f"pg{version}", marks=requires("postgresql-15") if version == "15" else []
        )
        for version in versions
    ]
    if len(params) > 1 or suffix or _only_version():
        metafunc.parametrize("server_kind", params, indirect=True)


@pytest.fixture
def server_kind(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "18")


@pytest.fixture(scope="session")
def test_run() -> TestRun:
    return TestRun.current()


@pytest.fixture
def server(test_run: TestRun, server_kind: str) -> Server:
    """The shared PostgreSQL this test runs on. Never stop it, and change no setting of the whole server."""
    return test_run.server(server_kind)


@pytest.fixture
def scratch(test_run: TestRun) -> Iterator[Path]:
    """A directory for servers a test starts itself: short path, open to every account. Call their logs ``*.log``."""
    place = test_run.scratch()
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def _databases(test_run: TestRun) -> Iterator[Callable[[Server], Databases]]:
    known: dict[str, Databases] = {}

    def get(server: Server) -> Databases:
        if server.kind not in known:
            known[server.kind] = Databases(test_run, server)
        return known[server.kind]

    yield get
    for databases in known.values():
        databases.close()


@pytest.fixture
def dsn(server: Server, _databases: Callable[[Server], Databases]) -> Iterator[str]:
    """A fresh database with the current schema, as its superuser."""
    databases = _databases(server)
    name = databases.migrated()
    yield server.dsn(name)
    databases.drop(name)


@pytest.fixture
def midweek(dsn: str) -> None:
    """The clock runs on from a Wednesday, ten past twelve: no window of a budget ends during the test."""
    from sluicegate.testing import set_clock

    set_clock(dsn, datetime(2026, 6, 10, 12, 10, tzinfo=UTC))


@pytest.fixture
def empty_dsn(server: Server, _databases: Callable[[Server], Databases]) -> Iterator[str]:
    """A fresh database without our schema, as its superuser."""
    databases = _databases(server)
    name = databases.empty()
    yield server.dsn(name)
    databases.drop(name)


@pytest.fixture
async def connect(dsn: str) -> AsyncIterator[Connect]:
    """Opens further connections to the test's database; they are closed at its end. Autocommit unless told otherwise."""
    opened: list[Connection] = []

    async def open_one(*, autocommit: bool = True, **options: Any) -> Connection:
        connection = await psycopg.AsyncConnection.connect(
            dsn, autocommit=autocommit, prepare_threshold=None, **options
        )
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        await connection.close()


@pytest.fixture
async def db(connect: Connect) -> Connection:
    """A psycopg connection in autocommit mode to the test's database."""
    return await connect()


@pytest.fixture
async def client(dsn: str) -> "AsyncIterator[Client]":
    from sluicegate import Client

    async with Client(dsn) as opened:
        yield opened


@pytest.fixture
async def wait_blocked(connect: Connect) -> Callable[..., Awaitable[list[int]]]:
    """``await wait_blocked(pid, by=None, timeout=30)``: the pids that block a backend, once it is blocked."""
    watcher = await connect(application_name="watcher")

    async def wait(pid: int, *, by: int | None = None, timeout: float = 30) -> list[int]:
        return await wait_until_blocked(watcher, pid, by=by, timeout=timeout)

    return wait

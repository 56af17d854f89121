"""Fixtures of the SQL tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.sql.small import THING, Small
from tests.sql.verbs import Crowd, Sql

OpenSql = Callable[[], Sql]


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """A schema of the tests' own: one table, one function."""
    source = Small(tmp_path / "source")
    source.migration("0001_thing", THING)
    source.function("greet")
    return source


@pytest.fixture
def another(dsn: str) -> Iterator[OpenSql]:
    """Opens one more connection to the test's database at each call. Who waits a minute has failed."""
    opened: list[psycopg.Connection] = []

    def open_one() -> Sql:
        connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
        connection.execute("set statement_timeout = '60s'")
        opened.append(connection)
        return Sql(connection)

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def sql(another: OpenSql) -> Sql:
    """A connection in autocommit mode, as the superuser."""
    return another()


@pytest.fixture
def crowd(another: OpenSql) -> Iterator[Callable[[int], Crowd]]:
    """``crowd(n)``: n callers on connections of their own."""
    gathered: list[Crowd] = []

    def gather(size: int) -> Crowd:
        gathered.append(Crowd([another() for _ in range(size)]))
        return gathered[-1]

    yield gather
    for members in gathered:
        members.close()

"""The migrator behind a pooler and on a standby."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from sluicegate.errors import Unavailable
from sluicegate.ops.doctor import Circumstances, diagnose
from sluicegate.sql.migrate import MigrationReport, migrate, schema_state
from tests.integration.test_client_pgbouncer import start
from tests.sql.small import THING, Small, ask, versions
from tests.support.holder import Holder
from tests.support.requirements import requires
from tests.support.waiting import eventually

INDEX = "-- nontransactional\ncreate index concurrently if not exists thing_note on sluicegate.thing (note);\n"


@pytest.fixture
def small(tmp_path: Path) -> Small:
    source = Small(tmp_path / "source")
    source.migration("0001_thing", THING)
    source.function("greet")
    return source


def answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def pooled(empty_dsn: str) -> Iterator[str]:
    place = Path(tempfile.mkdtemp(prefix="sluicegate-pgb-", dir="/tmp"))
    process = start(empty_dsn, place)
    address = f"host={place} port=6432 dbname=pooled user=anyone"
    try:
        eventually(lambda: answers(address), "pgbouncer accepts connections")
        yield address
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(place)


@requires("pgbouncer")
def test_migrators_take_turns_through_a_pooler_in_transaction_mode(small: Small, pooled: str, empty_dsn: str) -> None:
    for number in range(2, 5):
        small.migration(f"{number:04d}_step", f"alter table sluicegate.thing add column c{number} integer;")

    def one(_: int) -> MigrationReport:
        return small.migrate(pooled)

    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(one, range(4)))
    assert sorted(label for report in reports for label in report.applied) == [
        "0001_thing",
        "0002_step",
        "0003_step",
        "0004_step",
    ]
    assert versions(empty_dsn) == [1, 2, 3, 4]
    with psycopg.connect(pooled, prepare_threshold=None) as conn:
        assert conn.execute("show search_path").fetchone() == ('"$user", public',)
        assert conn.execute("show lock_timeout").fetchone() == ("0",)


@requires("pgbouncer")
def test_a_file_that_needs_a_session_is_refused_behind_a_pooler(small: Small, pooled: str, empty_dsn: str) -> None:
    small.migration("0002_index", INDEX)
    with pytest.raises(Unavailable, match=r"Migration 0002_index.*goes through a pooler.*names the PostgreSQL server"):
        small.migrate(pooled)
    assert versions(empty_dsn) == [1]
    assert small.migrate(empty_dsn).applied == ("0002_index",)


@pytest.fixture
def place() -> Iterator[Path]:
    """A short directory that the server's account may enter."""
    made = Path(tempfile.mkdtemp(prefix="sluicegate-standby-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def standby(place: Path) -> Iterator[str]:
    """A server in recovery that has nobody to follow, and our schema in it."""
    holder = Holder(place, "18", durable=False)
    holder.initdb()
    dsn = f"postgresql://postgres:{holder.password}@/postgres?host={place}"
    primary = holder.start()
    try:
        with psycopg.connect(dsn) as conn:
            migrate(conn)
    finally:
        primary.send_signal(signal.SIGINT)
        primary.wait(30)
    marker = holder.data / "standby.signal"
    marker.touch()
    if holder.account is not None:
        shutil.chown(marker, holder.account.pw_uid)
    command = [str(holder.bin / "postgres"), "-D", str(holder.data), "-k", str(place)]
    with holder.log.open("ab") as log:
        process = holder.run_as_server(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        eventually(lambda: answers(dsn), "the standby accepts connections")
        yield dsn
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def test_a_standby_can_be_looked_at_but_not_migrated(standby: str, small: Small) -> None:
    with psycopg.connect(standby) as conn:
        assert schema_state(conn).state == "ok"
        conn.rollback()
        small.migration("0002_more", "create table sluicegate.more (id bigint);")
        with pytest.raises(Unavailable, match=r"standby, which cannot be migrated.*target_session_attrs=read-write"):
            migrate(conn)
        assert conn.read_only is None
    found = {check.name: check for check in diagnose(Circumstances(standby)).checks}["isolation"]
    assert (found.status, found.facts["standby"]) == ("fail", True)
    assert "target_session_attrs" in str(found.next_step)
    assert ask(standby, "select pg_is_in_recovery()")

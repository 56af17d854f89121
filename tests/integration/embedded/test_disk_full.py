"""What a full disk costs the private PostgreSQL: time, and nothing that was committed."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sluicegate.embedded import status, stop
from tests.integration.embedded.people import Guest, User, wait_stopped
from tests.support.requirements import requires
from tests.support.waiting import eventually


@pytest.fixture
def small_disk(scratch: Path) -> Iterator[Path]:
    disk = scratch / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=755", "tmpfs", disk], check=True)
    yield disk
    stop(disk / "data", force=True)
    subprocess.run(["umount", disk], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


@requires("tmpfs")
def test_a_disk_too_small_for_a_cluster_is_named_and_left_clean(me: User, small_disk: Path) -> None:
    data = small_disk / "data"
    said = me.attach(data, linger=1).refused()
    assert f"The disk that holds {data} is full" in said
    assert "Free some space there" in said
    assert not (data / "cluster").exists()
    assert not (data / "cluster.unfinished").exists()
    resize(small_disk, "200m")
    assert me.attach(data, linger=1).server_version


@requires("tmpfs")
def test_a_disk_that_fills_up_stops_the_server_and_loses_nothing(me: User, small_disk: Path) -> None:
    data = small_disk / "data"
    resize(small_disk, "200m")
    guest = me.attach(data, linger=1)
    with psycopg.connect(guest.dsn, autocommit=True) as connection:
        connection.execute("create table kept as select 1 as value")
        fill(small_disk)
        with pytest.raises(psycopg.errors.DiskFull):
            connection.execute("insert into kept select generate_series(1, 1000000)")
        assert connection.execute("select count(*) from kept").fetchone() == (1,)
    guest.leave()
    wait_stopped(data, guest.server_pid, guest.supervisor_pid)
    fill(small_disk)
    said = me.attach(data, linger=1).refused()
    assert f"The disk that holds {data} is full" in said
    (small_disk / "filler").unlink()
    again = me.attach(data, linger=1)
    with psycopg.connect(again.dsn) as connection:
        assert connection.execute("select * from kept").fetchall() == [(1,)]


@requires("tmpfs")
def test_a_crash_on_a_full_disk_loses_nothing(me: User, small_disk: Path) -> None:
    data = small_disk / "data"
    resize(small_disk, "200m")
    guest = me.attach(data, linger=1)
    with psycopg.connect(guest.dsn, autocommit=True) as connection:
        connection.execute("create table kept as select 1 as value")
    fill(small_disk)
    os.kill(guest.server_pid, signal.SIGKILL)
    eventually(lambda: _runs_again_or_gave_up(guest, data), "it runs again, or has given up")
    (small_disk / "filler").unlink()
    guest.tell("renew")
    again = me.attach(data)
    with psycopg.connect(again.dsn) as connection:
        assert connection.execute("select * from kept").fetchall() == [(1,)]


def _runs_again_or_gave_up(guest: Guest, data: Path) -> bool:
    found = status(data)
    again = found.state == "running" and found.server_pid not in (None, guest.server_pid)
    return again or guest.tell("open") == {"is_open": False}


@requires("tmpfs", "second-user")
def test_a_full_disk_for_the_programs_is_named(small_disk: Path, ordinary: User) -> None:
    small_disk.chmod(0o1777)
    said = ordinary.attach(small_disk / "data", environment={"XDG_DATA_HOME": str(small_disk)}).refused()
    assert f"{small_disk}/sluicegate/postgresql: " in said
    assert "No space left on device" in said
    assert "with 40 MB to spare" in said
    assert not list((small_disk / "sluicegate" / "postgresql").iterdir())


def fill(disk: Path) -> None:
    """Leave not one byte of a small disk."""
    descriptor = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
    try:
        for size in (2**20, 4096, 1):
            with contextlib.suppress(OSError):
                while os.write(descriptor, b"x" * size):
                    pass
    finally:
        os.close(descriptor)
    assert shutil.disk_usage(disk).free == 0

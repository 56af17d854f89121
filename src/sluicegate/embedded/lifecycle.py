"""What the supervisor does with its server: start, watch, restart after a crash, answer commands, stop when idle."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from types import FrameType

from sluicegate.embedded.binaries import Binaries, probe
from sluicegate.embedded.cluster import DATABASE, SUPERUSER, Cluster
from sluicegate.embedded.control import PROTOCOL, refusal
from sluicegate.embedded.failures import explain, held_by_dying_server, log_since, log_size
from sluicegate.embedded.guests import Guest, Guests, Request
from sluicegate.embedded.layout import write_atomically
from sluicegate.embedded.logs import rotate
from sluicegate.embedded.other_major import require_same_major
from sluicegate.embedded.processes import end_old_server, reap, remember
from sluicegate.errors import EmbeddedError

__all__ = ["Lifecycle"]

_RESTART_DELAYS_SECONDS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
_STEADY_SECONDS = 60.0
_FIRST_CLIENT_SECONDS = 30.0
_UNDECIDED_SECONDS = 5.0
_LOOK_SECONDS = 0.003
_TICK_SECONDS = 60.0
_DYING_SECONDS = 20.0
_FAST_SHUTDOWN_SECONDS = 60.0
_QUIT_SECONDS = 5.0


class _State(Enum):
    STARTING = auto()
    RUNNING = auto()
    WAITING = auto()
    OVER = auto()


class Lifecycle:
    """One server from its first start to its last end. ``linger`` is how many seconds it outlives its last client."""

    def __init__(self, cluster: Cluster, guests: Guests, linger: float) -> None:
        self._cluster = cluster
        self._guests = guests
        self._linger = linger
        self._state = _State.WAITING
        self._pid: int | None = None
        self._fingerprint: tuple[int, ...] | None = None
        self._log_offset = 0
        self._spawned_at = 0.0
        self._failures = 0
        self._restart_at = 0.0
        self._waiting: list[Guest] = []
        self._idle_since: float | None = time.monotonic()
        self._had_client = False
        self._stop_asked = False
        self._wakeup = os.pipe()
        self._listen_to_signals()

    def _listen_to_signals(self) -> None:
        for end in self._wakeup:
            os.set_blocking(end, False)
        self._guests.selector.register(self._wakeup[0], 1)
        signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask_to_stop)

    def _ask_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_asked = True

    # Starting

    def start(self) -> None:
        """Bring the server up, making the cluster if need be; return when it is ready. Raises EmbeddedError."""
        self._write_record(server=None)
        end_old_server(self._cluster.data.cluster, self._cluster.sockets.server)
        self._cluster.ensure()
        give_up_at = time.monotonic() + _DYING_SECONDS
        while True:
            self._spawn()
            while self._state is _State.STARTING:
                time.sleep(_LOOK_SECONDS)
                self._look()
            if self._state is _State.RUNNING:
                return
            output = log_since(self._cluster.data.log, self._log_offset)
            if not held_by_dying_server(output) or time.monotonic() > give_up_at:
                raise explain(output, self._cluster.circumstances, "start")
            time.sleep(_LOOK_SECONDS)

    def _spawn(self) -> None:
        rotate(self._cluster.data.log)
        self._log_offset = log_size(self._cluster.data.log)
        self._fingerprint = _fingerprint(self._cluster.binaries)
        self._pid = self._cluster.start()
        self._spawned_at = time.monotonic()
        self._state = _State.STARTING
        self._write_record(server=self._pid)

    def _write_record(self, server: int | None) -> None:
        """Leave our address for those who look for us, and what is needed to recognise us when we are dead."""
        record = {
            "control": str(self._cluster.sockets.control),
            "supervisor": remember(os.getpid()),
            "server": None if server is None else remember(server),
        }
        write_atomically(self._cluster.data.record, json.dumps(record) + "\n")

    def _look(self) -> None:
        """See what became of the server."""
        ended = [pid for pid, _ in reap()]
        if self._pid is not None and self._pid in ended:
            self._pid = None
            self._state = _State.WAITING
        elif self._state is _State.STARTING and self._pid is not None and self._cluster.is_ready(self._pid):
            self._state = _State.RUNNING

    # Watching

    def run(self) -> None:
        """Serve until the last client has been gone for long enough, or somebody asks for the end."""
        while self._state is not _State.OVER:
            for request in self._guests.wait(self._pause()):
                self._serve(request)
            self._watch_server()
            self._forget_the_gone()
            if self._stop_asked or self._idle_too_long():
                break
        self._finish()

    def _pause(self) -> float:
        now = time.monotonic()
        if self._state is _State.STARTING:
            return _LOOK_SECONDS
        if self._state is _State.WAITING:
            return max(0.0, self._restart_at - now)
        idle_left = _TICK_SECONDS if self._idle_since is None else self._idle_ends() - now
        return min(_TICK_SECONDS, max(0.0, idle_left))

    def _watch_server(self) -> None:
        before = self._state
        self._look()
        if self._pid is None and before in (_State.RUNNING, _State.STARTING):
            self._plan_restart()
        if self._state is _State.WAITING and time.monotonic() >= self._restart_at:
            self._restart()
        if self._state is _State.RUNNING:
            for guest in self._waiting:
                self._welcome(guest)
            self._waiting.clear()
        rotate(self._cluster.data.log)

    def _plan_restart(self) -> None:
        """The server ended by itself or was killed: begin again, ever more slowly, and give up in the end."""
        if time.monotonic() - self._spawned_at >= _STEADY_SECONDS:
            self._failures = 0
        end_old_server(self._cluster.data.cluster, self._cluster.sockets.server)
        if self._failures >= len(_RESTART_DELAYS_SECONDS) or not self._cluster.exists():
            output = log_since(self._cluster.data.log, self._log_offset)
            self._give_up(explain(output, self._cluster.circumstances, "keep running"))
            return
        self._restart_at = time.monotonic() + _RESTART_DELAYS_SECONDS[self._failures]
        self._failures += 1

    def _restart(self) -> None:
        try:
            self._spawn()
        except EmbeddedError as error:
            self._give_up(error)
        except OSError as error:
            self._give_up(explain(str(error), self._cluster.circumstances, "start again"))

    def _give_up(self, error: EmbeddedError) -> None:
        self._guests.close_door()
        for guest in self._waiting:
            guest.answer(refusal(error))
        self._waiting.clear()
        self._state = _State.OVER

    # Commands

    def _serve(self, request: Request) -> None:
        guest, message = request.guest, request.message
        if message.get("protocol") != PROTOCOL:
            guest.answer(refusal(_other_protocol(self._cluster)))
            return
        verb = message.get("verb")
        if verb == "attach":
            self._attach(guest, message)
        elif verb == "status":
            guest.answer({**self._facts(), "clients": [client.to_dict() for client in self._guests.clients]})
        elif verb == "stop":
            self._serve_stop(guest, force=message.get("force") is True)
        else:
            guest.answer(refusal(EmbeddedError(f"The supervisor knows no verb {verb!r}.")))

    def _attach(self, guest: Guest, message: dict[str, object]) -> None:
        guest.label = str(message.get("label") or "")
        port = message.get("port")
        if self._state is not _State.RUNNING:
            self._waiting.append(guest)
            return
        try:
            if isinstance(port, int) and port != self._cluster.port:
                self._change_port(port)
            notice = self._compare_binaries()
        except EmbeddedError as error:
            guest.answer(refusal(error))
            return
        self._welcome(guest, notice)

    def _welcome(self, guest: Guest, notice: str | None = None) -> None:
        if self._guests.is_connected(guest):
            guest.attached = True
            self._had_client = True
            self._idle_since = None
            guest.answer({**self._facts(), "notice": notice})

    def _serve_stop(self, guest: Guest, *, force: bool) -> None:
        others = self._guests.clients
        if others and not force:
            names = ", ".join(f"{client.label or 'a command'} (process {client.pid})" for client in others)
            guest.answer(
                refusal(
                    EmbeddedError(
                        f"The private PostgreSQL in {self._cluster.data.path} is in use by {names}.",
                        next_step="End these first: it stops by itself after them. Or stop it under them with force.",
                    )
                )
            )
            return
        guest.answer({"ok": True})
        self._stop_asked = True

    def _facts(self) -> dict[str, object]:
        cluster = self._cluster
        return {
            "ok": True,
            "protocol": PROTOCOL,
            "state": self._state.name.lower(),
            "socket_dir": str(cluster.sockets.server),
            "socket_port": cluster.socket_port,
            "tcp_port": cluster.port,
            "user": SUPERUSER,
            "database": DATABASE,
            "server_version": cluster.binaries.version,
            "bindir": str(cluster.binaries.bindir),
            "carrier": cluster.binaries.carrier,
            "account": cluster.account.name,
            "server_pid": self._pid,
            "supervisor_pid": os.getpid(),
            "log": str(cluster.data.log),
            "linger": self._linger,
        }

    def _change_port(self, port: int) -> None:
        if self._guests.clients:
            now = "without a TCP port" if self._cluster.port is None else f"on TCP port {self._cluster.port}"
            raise EmbeddedError(
                f"The private PostgreSQL in {self._cluster.data.path} already runs {now}, and commands are using it.",
                next_step="End these commands (`sluicegate doctor` lists them) and ask for the port again.",
            )
        before = self._cluster
        self._stop_server()
        self._cluster = replace(before, port=port)
        try:
            self.start()
        except EmbeddedError:
            self._cluster = before
            self.start()
            raise

    def _compare_binaries(self) -> str | None:
        """Go over to programs that were replaced under the running server, or say what that means."""
        running = self._cluster.binaries
        now = _fingerprint(running)
        if now == self._fingerprint:
            return None
        if now is None:
            return (
                f"The programs of the running PostgreSQL {running.version} in {running.bindir} are gone; new connections "
                "may fail. Install them again, or end the commands that use it: the next start looks for others."
            )
        found = probe(running.carrier, running.bindir, self._cluster.account)
        if found.version == running.version:
            return None
        require_same_major(self._cluster.data, found)
        if self._guests.clients:
            return (
                f"PostgreSQL {running.version} is running, but its programs in {running.bindir} are {found.version} "
                "now; new connections may fail. End the commands that use it: the next one starts the new version."
            )
        self._stop_server()
        self._cluster = replace(self._cluster, binaries=found)
        self.start()
        return None

    # Ending

    def _forget_the_gone(self) -> None:
        self._waiting = [guest for guest in self._waiting if self._guests.is_connected(guest)]
        if self._guests.clients or self._waiting:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()

    def _idle_ends(self) -> float:
        patience = self._linger if self._had_client else max(self._linger, _FIRST_CLIENT_SECONDS)
        return (self._idle_since or 0.0) + patience

    def _idle_too_long(self) -> bool:
        if self._idle_since is None or time.monotonic() < self._idle_ends():
            return False
        self._guests.accept_waiting()
        return not self._guests.has_undecided(_UNDECIDED_SECONDS)

    def _finish(self) -> None:
        self._guests.close_door()
        self._cluster.data.record.unlink(missing_ok=True)
        self._stop_server()
        self._cluster.sockets.remove()

    def close(self, error: EmbeddedError) -> None:
        """Clean up after a start that failed, and tell everybody who is waiting for it."""
        self._guests.accept_waiting()
        self._guests.tell_all(refusal(error))
        self._finish()
        self._guests.close()

    def _stop_server(self) -> None:
        begin = time.monotonic()
        steps = [(0.0, signal.SIGINT), (_FAST_SHUTDOWN_SECONDS, signal.SIGQUIT)]
        steps.append((_FAST_SHUTDOWN_SECONDS + _QUIT_SECONDS, signal.SIGKILL))
        while self._pid is not None:
            if steps and time.monotonic() - begin >= steps[0][0]:
                _, number = steps.pop(0)
                with suppress(ProcessLookupError):
                    os.kill(self._pid, number)
            time.sleep(_LOOK_SECONDS)
            self._look()
        end_old_server(self._cluster.data.cluster, self._cluster.sockets.server)


def _fingerprint(binaries: Binaries) -> tuple[int, ...] | None:
    try:
        found = binaries.program("postgres").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _other_protocol(cluster: Cluster) -> EmbeddedError:
    return EmbeddedError(
        f"The private PostgreSQL in {cluster.data.path} was started by another version of Sluicegate.",
        next_step="End the commands that use it; it stops by itself after them, and the next command starts it anew.",
    )

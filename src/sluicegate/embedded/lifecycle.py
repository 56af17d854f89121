"""The supervisor at work: answers commands, keeps the server up for them, and stops it when nobody is left."""

from __future__ import annotations

import os
import shlex
import signal
import time
from dataclasses import replace
from types import FrameType

from sluicegate.embedded.binaries import probe
from sluicegate.embedded.cluster import DATABASE, SUPERUSER, Cluster
from sluicegate.embedded.control import PROTOCOL, refusal
from sluicegate.embedded.guests import Guest, Guests, Request
from sluicegate.embedded.keeper import LOOK_SECONDS, Keeper, State, fingerprint
from sluicegate.embedded.other_major import require_same_major
from sluicegate.errors import EmbeddedError

__all__ = ["Lifecycle"]

_FIRST_CLIENT_SECONDS = 30.0
_UNDECIDED_SECONDS = 5.0
_TICK_SECONDS = 60.0


class Lifecycle:
    """A keeper, the guests it is kept for, and how many seconds it outlives the last of them: ``linger``."""

    def __init__(self, keeper: Keeper, guests: Guests, linger: float) -> None:
        self._keeper = keeper
        self._guests = guests
        self._linger = linger
        self._waiting: list[Guest] = []
        self._idle_since: float | None = time.monotonic()
        self._had_client = False
        self._stop_asked = False
        self._wakeup = os.pipe()
        self._listen_to_signals()

    @property
    def _cluster(self) -> Cluster:
        return self._keeper.cluster

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

    def start(self) -> None:
        """Return when the server is ready. Raises EmbeddedError; ``fail`` tells it to those who wait."""
        self._keeper.start()
        self._idle_since = time.monotonic()

    def fail(self, error: EmbeddedError) -> None:
        """Clean up after a start that failed, and tell everybody who is waiting for it."""
        self._guests.accept_waiting()
        self._guests.tell_all(refusal(error))
        self._finish()
        self._guests.close()

    def run(self) -> None:
        """Serve until the last client has been gone for long enough, or somebody asks for the end."""
        while self._keeper.state is not State.OVER:
            for request in self._guests.wait(self._pause()):
                self._serve(request)
            self._keeper.watch()
            if self._keeper.state is State.RUNNING:
                self._welcome_the_waiting()
            self._note_idleness()
            if self._stop_asked or self._idle_too_long() or not self._keeper.owns_directory():
                break
        if self._keeper.failure is not None:
            for guest in self._waiting:
                guest.answer(refusal(self._keeper.failure))
        self._finish()

    def _pause(self) -> float:
        now = time.monotonic()
        if self._keeper.state is State.STARTING:
            return LOOK_SECONDS
        if self._keeper.state is State.WAITING:
            return max(0.0, self._keeper.restart_at - now)
        idle_left = _TICK_SECONDS if self._idle_since is None else self._idle_ends() - now
        return min(_TICK_SECONDS, max(LOOK_SECONDS, idle_left))

    def _serve(self, request: Request) -> None:
        guest, message = request.guest, request.message
        verb = message.get("verb")
        if message.get("protocol") != PROTOCOL:
            guest.answer(refusal(self._other_version()))
        elif verb == "attach":
            self._attach(guest, message)
        elif verb == "status":
            guest.answer({**self._facts(), "clients": [client.to_dict() for client in self._guests.clients]})
        elif verb == "stop":
            self._serve_stop(guest, force=message.get("force") is True)
        else:
            guest.answer(refusal(self._other_version()))

    def _attach(self, guest: Guest, message: dict[str, object]) -> None:
        guest.label = str(message.get("label") or "")
        if self._keeper.state is not State.RUNNING:
            self._waiting.append(guest)
            return
        port = message.get("port")
        try:
            if isinstance(port, int) and port != self._cluster.port:
                self._change_port(port)
            notice = self._compare_binaries()
        except EmbeddedError as error:
            guest.answer(refusal(error))
            return
        self._welcome(guest, notice)

    def _welcome_the_waiting(self) -> None:
        for guest in self._waiting:
            self._welcome(guest)
        self._waiting.clear()

    def _welcome(self, guest: Guest, notice: str | None = None) -> None:
        if self._guests.is_connected(guest):
            guest.attached = True
            self._had_client = True
            guest.answer({**self._facts(), "notice": notice})

    def _serve_stop(self, guest: Guest, *, force: bool) -> None:
        others = self._guests.clients
        if others and not force:
            names = ", ".join(f"{client.label or 'a command'} (process {client.pid})" for client in others)
            error = EmbeddedError(
                f"The private PostgreSQL in {self._cluster.data.path} is in use by {names}.",
                next_step="End these first: it stops by itself after them. Or stop it under them with force.",
            )
            guest.answer(refusal(error))
            return
        guest.answer({"ok": True})
        self._stop_asked = True

    def _facts(self) -> dict[str, object]:
        cluster = self._cluster
        return {
            "ok": True,
            "protocol": PROTOCOL,
            "state": self._keeper.state.name.lower(),
            "socket_dir": str(cluster.sockets.server),
            "socket_port": cluster.socket_port,
            "tcp_port": cluster.port,
            "user": SUPERUSER,
            "database": DATABASE,
            "server_version": cluster.binaries.version,
            "bindir": str(cluster.binaries.bindir),
            "carrier": cluster.binaries.carrier,
            "account": cluster.account.name,
            "server_pid": self._keeper.pid,
            "supervisor_pid": os.getpid(),
            "linger": self._linger,
        }

    def _other_version(self) -> EmbeddedError:
        return EmbeddedError(
            f"The private PostgreSQL in {self._cluster.data.path} was started by another version of Sluicegate.",
            next_step="End the commands that use it; it stops by itself after them, and the next one starts it anew.",
        )

    def _change_port(self, port: int) -> None:
        if self._guests.clients:
            now = "without a TCP port" if self._cluster.port is None else f"on TCP port {self._cluster.port}"
            raise EmbeddedError(
                f"The private PostgreSQL in {self._cluster.data.path} already runs {now}, and commands are using it.",
                next_step="End these commands (`python -m sluicegate.embedded status "
                f"{shlex.quote(str(self._cluster.data.path))}` lists them) and ask for the port again.",
            )
        before = self._cluster
        try:
            self._go_over_to(replace(before, port=port))
        except EmbeddedError:
            self._go_over_to(before)
            raise

    def _compare_binaries(self) -> str | None:
        """Go over to programs that were replaced under the running server, or say what that means."""
        running = self._cluster.binaries
        now = fingerprint(running)
        if now == self._keeper.fingerprint:
            return None
        if now is None:
            return (
                f"The programs of the running PostgreSQL {running.version} in {running.bindir} are gone, so new "
                "connections may fail. Install them again, or end the commands that use it: the next one looks for "
                "others."
            )
        found = probe(running.carrier, running.bindir, self._cluster.account)
        if found.version == running.version:
            return None
        require_same_major(self._cluster.data, found)
        if self._guests.clients:
            return (
                f"PostgreSQL {running.version} is running, but its programs in {running.bindir} are {found.version} "
                "now, so new connections may fail. End the commands that use it: the next one starts the new version."
            )
        self._go_over_to(replace(self._cluster, binaries=found))
        return None

    def _go_over_to(self, cluster: Cluster) -> None:
        self._keeper.stop()
        self._keeper.cluster = cluster
        self._keeper.start()

    def _note_idleness(self) -> None:
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
        self._keeper.withdraw()
        self._keeper.stop()
        self._cluster.sockets.remove()

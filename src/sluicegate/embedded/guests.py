"""The supervisor's side of the control socket: who is connected, and what they ask."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sluicegate.embedded.control import LONGEST_LINE, decode, encode

__all__ = ["Guest", "Guests", "Request"]

_BACKLOG = 128
_CHUNK = 4096
_CREDENTIALS = struct.Struct("3i")


@dataclass(eq=False)
class Guest:
    """A connected process. It counts as a client once its ``attach`` was answered."""

    connection: socket.socket
    pid: int
    since: float
    label: str = ""
    has_asked: bool = False
    attached: bool = False
    received: bytes = field(default=b"", repr=False)

    def answer(self, message: dict[str, object]) -> None:
        # An answer is small and the first thing on this connection, so it fits or the other end is not ours.
        with suppress(OSError):
            self.connection.sendall(encode(message))

    def to_dict(self) -> dict[str, object]:
        return {"pid": self.pid, "label": self.label, "seconds": round(time.monotonic() - self.since, 3)}


@dataclass(frozen=True)
class Request:
    guest: Guest
    message: dict[str, object]


class Guests:
    """Accepts, reads and forgets connections; ``selector`` may watch other things too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guests: set[Guest] = set()
        self.selector = selectors.DefaultSelector()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(path))
        path.chmod(0o600)
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self.selector.register(self._listener, selectors.EVENT_READ)

    @property
    def clients(self) -> list[Guest]:
        """Those that hold PostgreSQL up, longest first."""
        return sorted((guest for guest in self._guests if guest.attached), key=lambda guest: guest.since)

    def has_undecided(self, seconds: float) -> bool:
        """Whether somebody came within the last ``seconds`` and has asked nothing yet: it may be for an attachment."""
        newest = max((guest.since for guest in self._guests if not guest.has_asked), default=0.0)
        return newest > time.monotonic() - seconds

    def wait(self, timeout: float) -> Iterator[Request]:
        """Wait for something to happen, at most ``timeout`` seconds, and yield the requests that came whole."""
        for key, _ in self.selector.select(timeout):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, Guest):
                yield from self._read(key.data)
            else:
                os.read(key.fd, _CHUNK)

    def accept_waiting(self) -> None:
        self._accept()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            pid, uid = _peer(connection)
            if uid not in (0, os.geteuid()):
                connection.close()
                continue
            connection.settimeout(1.0)
            guest = Guest(connection, pid, time.monotonic())
            self._guests.add(guest)
            self.selector.register(connection, selectors.EVENT_READ, guest)

    def _read(self, guest: Guest) -> Iterator[Request]:
        try:
            chunk = guest.connection.recv(_CHUNK)
        except OSError:
            chunk = b""
        guest.received += chunk
        if not chunk or len(guest.received) > LONGEST_LINE:
            self.dismiss(guest)
            return
        while b"\n" in guest.received:
            line, guest.received = guest.received.split(b"\n", 1)
            try:
                message = decode(line)
            except ValueError:
                self.dismiss(guest)
                return
            guest.has_asked = True
            yield Request(guest, message)

    def tell_all(self, message: dict[str, object]) -> None:
        for guest in self._guests:
            guest.answer(message)

    def dismiss(self, guest: Guest) -> None:
        if guest in self._guests:
            self._guests.discard(guest)
            self.selector.unregister(guest.connection)
        guest.connection.close()

    def is_connected(self, guest: Guest) -> bool:
        return guest in self._guests

    def close_door(self) -> None:
        """Take no more connections: whoever comes now starts another supervisor, which waits for our end."""
        self._path.unlink(missing_ok=True)
        with suppress(KeyError, ValueError):
            self.selector.unregister(self._listener)
        self._listener.close()

    def close(self) -> None:
        self.close_door()
        for guest in list(self._guests):
            self.dismiss(guest)
        self.selector.close()


def _peer(connection: socket.socket) -> tuple[int, int]:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid

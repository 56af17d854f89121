"""The words between a command and the supervisor: one JSON object a line over a unix socket.

    {"protocol": 1, "verb": "attach", "label": "sluicegate up", "port": null}    and the connection is the attachment
    {"protocol": 1, "verb": "status"}
    {"protocol": 1, "verb": "stop", "force": false}

Each is answered by one object: ``{"ok": true, ...}`` or ``{"ok": false, "message", "next_step"}``.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from sluicegate.embedded.layout import DataDir, read_record
from sluicegate.errors import EmbeddedError

__all__ = ["PROTOCOL", "Connection", "Gone", "connect", "decode", "encode", "refusal", "refused"]

PROTOCOL = 1
LONGEST_LINE = 64 * 1024
_CHUNK = 4096


class Gone(Exception):
    """The supervisor closed the connection, or there is none: starting one is worth a try."""


def encode(message: Mapping[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def decode(line: bytes) -> dict[str, object]:
    """Raises ValueError for anything but one JSON object."""
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 (to a reader of the socket both are bad input)
    return found


def refusal(error: EmbeddedError) -> dict[str, object]:
    return {"ok": False, "message": error.message, "next_step": error.next_step}


def refused(answer: Mapping[str, object]) -> EmbeddedError:
    """The error that a refusal carries."""
    step = answer.get("next_step")
    return EmbeddedError(str(answer.get("message")), next_step=None if step is None else str(step))


class Connection:
    """A command's end of the control socket. It is inherited by no program this process starts."""

    def __init__(self, path: Path) -> None:
        """Connect. Raises Gone where nobody listens, EmbeddedError where we may not."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(os.fspath(path))
        except PermissionError as error:
            self._socket.close()
            raise EmbeddedError(
                f"The supervisor of the private PostgreSQL, {path}, may not be used by this user.",
                next_step="Run the command as the user who owns the data directory.",
            ) from error
        except OSError as error:
            self._socket.close()
            raise Gone(f"{path}: {error.strerror or error}") from error

    def ask(self, message: Mapping[str, object], deadline: float) -> dict[str, object]:
        """Send one message and return its answer. Raises Gone, TimeoutError, or EmbeddedError for a refusal."""
        try:
            self._socket.sendall(encode({"protocol": PROTOCOL, **message}))
            answer = decode(self._line(deadline))
        except (ConnectionError, ValueError) as error:
            raise Gone(str(error)) from error
        if answer.get("ok") is not True:
            raise refused(answer)
        return answer

    def _line(self, deadline: float) -> bytes:
        received = b""
        while not received.endswith(b"\n"):
            self._await_readable(deadline)
            chunk = self._socket.recv(_CHUNK)
            if not chunk:
                raise Gone("the supervisor closed the connection")
            received += chunk
        return received

    def wait_closed(self, deadline: float) -> None:
        """Return when the supervisor has closed its end, which at a stop it does last. Raises TimeoutError."""
        try:
            while True:
                self._await_readable(deadline)
                if not self._socket.recv(_CHUNK):
                    return
        except ConnectionError:
            return

    def _await_readable(self, deadline: float) -> None:
        if not _readable(self._socket, max(0.0, deadline - time.monotonic())):
            raise TimeoutError

    @property
    def is_open(self) -> bool:
        """Whether the supervisor still holds its end; it says nothing unless asked, so readable means closed."""
        if self._socket.fileno() < 0:
            return False
        return not _readable(self._socket, 0.0)

    def close(self) -> None:
        self._socket.close()


def connect(data: DataDir) -> Connection:
    """A connection to the supervisor of a data directory. Raises Gone if there is none."""
    control = read_record(data).get("control")
    if not isinstance(control, str):
        raise Gone("no supervisor has left its address")
    return Connection(Path(control))


def _readable(sock: socket.socket, timeout: float) -> bool:
    # poll, because select cannot take a descriptor above 1023.
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(timeout * 1000))

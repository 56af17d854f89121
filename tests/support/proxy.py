"""A proxy in front of PostgreSQL that spoils connections on purpose.

It listens on a Unix socket of its own, or on a port of 127.0.0.1, and forwards to the server's socket. It knows as
much of the protocol as it takes to lose exactly the reply to one request, after the server has committed it.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_READY_FOR_QUERY = b"Z"
_IDLE = b"I"
_BLOCK = 65536


@dataclass
class Loss:
    """A request or reply that is going to be lost. ``done`` is set once it has been, and the connection cut."""

    containing: bytes
    reply: bool
    done: threading.Event = field(default_factory=threading.Event)

    def wait(self, timeout: float = 30) -> None:
        assert self.done.wait(timeout), f"nothing that contains {self.containing!r} was lost within {timeout} s"


class _Link:
    """One connection through the proxy: a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._losing: Loss | None = None
        self._unread = b""
        self._silent = False
        self._threads = [threading.Thread(target=pump, daemon=True) for pump in (self._to_server, self._to_client)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def cut(self) -> None:
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def silence(self) -> None:
        """Swallow from now on whatever either end sends, and let neither know."""
        self._silent = True

    def join(self) -> None:
        for thread in self._threads:
            thread.join(10)

    def _to_server(self) -> None:
        while data := self._read(self._client):
            if self._silent:
                continue
            loss = self._proxy.loss_for(data)
            if loss is not None and not loss.reply:
                self._proxy.lost(loss)
                break
            # Set before the server can answer, so that the other thread never forwards that answer.
            self._losing = self._losing or loss
            if not self._write(self._server, data):
                break
        self.cut()

    def _to_client(self) -> None:
        while data := self._read(self._server):
            if self._silent:
                continue
            if self._losing is not None:
                if self._is_answered(data):
                    self._proxy.lost(self._losing)
                    break
                continue
            if self._proxy.delay:
                time.sleep(self._proxy.delay)
            if not self._write(self._client, data):
                break
        self.cut()

    def _is_answered(self, data: bytes) -> bool:
        """Whether the server has said that it is ready again, outside a transaction: what it was told is committed."""
        self._unread += data
        while len(self._unread) >= 5:
            (length,) = struct.unpack_from("!I", self._unread, 1)
            if len(self._unread) < length + 1:
                return False
            message, self._unread = self._unread[: length + 1], self._unread[length + 1 :]
            if message[:1] == _READY_FOR_QUERY and message[5:6] == _IDLE:
                return True
        return False

    def _read(self, end: socket.socket) -> bytes:
        try:
            data = end.recv(_BLOCK)
        except OSError:
            return b""
        self._proxy.wait_open()
        return data

    def _write(self, end: socket.socket, data: bytes) -> bool:
        try:
            end.sendall(data)
        except OSError:
            return False
        return True


class Proxy:
    """``with Proxy(dsn) as proxy:`` then connect to ``proxy.dsn``.

    ``delay`` holds back every piece of a reply for that many seconds; ``blackhole`` stops all traffic both ways and
    keeps the connections open.
    """

    def __init__(self, dsn: str, *, tcp: bool = False) -> None:
        facts = conninfo_to_dict(dsn)
        self.delay = 0.0
        self.links_made = 0
        self._target = f"{facts['host']}/.s.PGSQL.{facts.get('port') or 5432}"
        self._place = Path(tempfile.mkdtemp(prefix="sluicegate-proxy-"))
        if tcp:
            self._listener = socket.create_server(("127.0.0.1", 0))
            host, port = self._listener.getsockname()
        else:
            host, port = str(self._place), 5432
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(f"{host}/.s.PGSQL.{port}")
            self._listener.listen(128)
        # Encryption would hide the protocol from us.
        self.dsn = make_conninfo(dsn, host=host, port=port, sslmode="disable", gssencmode="disable")
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._losses: list[Loss] = []
        self._open = threading.Event()
        self._open.set()
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and cut everything."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._open.set()
        self._accepting.join(10)
        for link in self.cut():
            link.join()
        shutil.rmtree(self._place, ignore_errors=True)

    def lose_reply(self, containing: bytes | str = b"") -> Loss:
        """Let the next request that contains this be carried out and committed, then cut instead of answering."""
        return self._arm(containing, reply=True)

    def lose_request(self, containing: bytes | str = b"") -> Loss:
        """Cut instead of passing on the next request that contains this."""
        return self._arm(containing, reply=False)

    def cut(self) -> list[_Link]:
        """Cut every connection there is. New ones are accepted."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.cut()
        return links

    def silence(self) -> None:
        """Every connection there is stays open and brings nothing any more, as if its other end were gone. New ones work."""
        with self._lock:
            for link in self._links:
                link.silence()

    @contextlib.contextmanager
    def blackhole(self) -> Iterator[None]:
        """Within, nothing arrives anywhere, and nobody is told."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def wait_open(self) -> None:
        self._open.wait()

    def loss_for(self, request: bytes) -> Loss | None:
        """The loss that this request is to suffer, if any; each happens once."""
        with self._lock:
            for loss in self._losses:
                if loss.containing in request:
                    self._losses.remove(loss)
                    return loss
        return None

    def lost(self, loss: Loss) -> None:
        loss.done.set()

    def _arm(self, containing: bytes | str, *, reply: bool) -> Loss:
        loss = Loss(containing.encode() if isinstance(containing, str) else containing, reply)
        with self._lock:
            self._losses.append(loss)
        return loss

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:
                client.close()
                server.close()
                continue
            link = _Link(self, client, server)
            with self._lock:
                self._links.append(link)
                self.links_made += 1
            link.start()

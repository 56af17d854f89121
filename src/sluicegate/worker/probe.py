"""What tells others how a worker is: a small HTTP server, and a file."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import socketserver
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sluicegate.errors import InvalidArgument
from sluicegate.model.health import WorkerHealth
from sluicegate.ops import validate

# An event loop that does not answer for so long, in seconds, is not alive.
_PATIENCE = 5.0
_FILE_SECONDS = 1.0

Health = Callable[[], WorkerHealth]


@contextmanager
def http_probe(health: Health, address: str) -> Iterator[tuple[str, int]]:
    """Within, ``address`` (HOST:PORT; port 0: any) answers ``GET /live``, ``/ready`` and ``/health``; gives host and port.

    200 or 503, and the whole health as JSON. It runs in threads of its own and asks the event loop, so that a loop that
    is blocked is told as not live. Raises InvalidArgument if it cannot listen there.
    """
    host, colon, port = address.rpartition(":")
    if not (host.strip("[]") and colon and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise InvalidArgument(
            f"{address!r} is no address.", field="health", next_step="Write HOST:PORT, such as 127.0.0.1:8099."
        )
    try:
        server = _Server(host.strip("[]"), int(port), _asked(health, asyncio.get_running_loop()))
    # A host that cannot be written as a name raises the latter two.
    except (OSError, UnicodeError, TypeError) as error:
        raise InvalidArgument(
            f"Cannot listen on {validate.shown(address)}: {getattr(error, 'strerror', None) or error}.",
            field="health",
            next_step="Choose another address, or end what uses it.",
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="health", daemon=True)
    thread.start()
    try:
        yield str(server.server_address[0]), int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, asked: Health) -> None:
        self.asked = asked
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Answer)

    def server_bind(self) -> None:
        # That of HTTPServer asks a name server for our name, which nobody wants to know.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever asked has gone: that is no news."""


class _Answer(BaseHTTPRequestHandler):
    server: _Server
    # Of its connection, in seconds: who asks for nothing must not keep a thread.
    timeout = _PATIENCE

    def do_GET(self) -> None:
        found = self.server.asked()
        paths = {"/live": found.live, "/ready": found.ready, "/health": found.live}
        good = paths.get(self.path)
        body = json.dumps(found.to_dict() if good is not None else {"code": "not_found", "paths": list(paths)}).encode()
        self.send_response(404 if good is None else 200 if good else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as it is called there
        """Probes come every few seconds and are no news."""


def _asked(health: Health, loop: asyncio.AbstractEventLoop) -> Health:
    """``health`` as the event loop tells it, or the last that it told, not live, when it does not answer."""
    known = health()

    async def ask() -> WorkerHealth:
        return health()

    def answer() -> WorkerHealth:
        nonlocal known
        try:
            known = asyncio.run_coroutine_threadsafe(ask(), loop).result(_PATIENCE)
        except (TimeoutError, RuntimeError):
            return replace(
                known, live=False, ready=False, fault=f"The event loop has not answered for {_PATIENCE:g} s."
            )
        return known

    return answer


@asynccontextmanager
async def health_file(health: Health, path: Path) -> AsyncIterator[None]:
    """Within, the file has the health as JSON, whole at any moment and written anew every second; then it is gone.

    A file that is old says that the event loop stands still. Raises InvalidArgument if it cannot be written.
    """
    if not path.name:
        raise InvalidArgument(f"{path} is a directory.", field="health_file", next_step="Name a file in it.")
    scratch = path.with_name(f".{path.name}.{os.getpid()}")

    def write() -> None:
        # It is replaced, not written to: a device or a pipe would be gone.
        if path.exists() and not path.is_file():
            raise FileExistsError(errno.EEXIST, "it is no ordinary file")
        scratch.write_text(json.dumps(health().to_dict()) + "\n")
        scratch.replace(path)

    async def keep() -> None:
        while True:
            await asyncio.sleep(_FILE_SECONDS)
            # A disk that is full now may not be so later; meanwhile the file's age says it.
            with contextlib.suppress(OSError):
                write()

    try:
        write()
    except OSError as error:
        raise InvalidArgument(
            f"Cannot write {path}: {error.strerror or error}.",
            field="health_file",
            next_step="Name a file in a folder that exists and may be written to.",
        ) from error
    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait((keeping,))
        for left in (scratch, path):
            with contextlib.suppress(OSError):
                left.unlink()

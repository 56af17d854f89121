"""Runs ``sluicegate`` commands as processes of their own without loading Python for each: forks of one that has it loaded.

A command has its own environment, folder, streams and exit status, as if it had been started; only what it imports was
imported before. A full run starts the installed program each time instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

_ROOT = Path(__file__).parents[2]
_MOST = 1 << 20


class Programs:
    """The process that forks. ``run`` may be called from several threads at once."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd=_ROOT
            )

    def run(
        self,
        arguments: Sequence[str | bytes],
        stdin: bytes,
        environment: Mapping[str, str],
        place: Path,
        timeout: float,
    ) -> tuple[int, bytes, bytes]:
        """Exit status, standard output and standard error. Who takes longer than ``timeout`` seconds is killed."""
        request = [[os.fsdecode(one) for one in arguments], dict(environment), str(place)]
        body = json.dumps(request).encode()
        assert len(body) < _MOST
        waits, tells = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with waits, tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            with tells:
                streams = [stream.fileno() for stream in (given, out, err)]
                socket.send_fds(self._ours, [body], [*streams, tells.fileno()])
            waits.settimeout(timeout)
            pid = int(waits.recv(16))
            try:
                status = int(waits.recv(16))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise
            for stream in (out, err):
                stream.seek(0)
            return status, out.read(), err.read()

    def close(self) -> None:
        self._ours.close()
        self._process.wait(30)


def _serve(requests: socket.socket) -> None:
    """Fork for each request, and fork again: the first waits for the second, while the next request is answered."""
    from sluicegate.cli import commands

    for module in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
        import_module(module.name)
    for name in ("sluicegate.cli.app", "sluicegate.cli.connection", "sluicegate.sync_client", "psycopg_pool"):
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        body, files, _, _ = socket.recv_fds(requests, _MOST, 4)
        if not body:
            return
        if os.fork() == 0:
            requests.close()
            _wait_for_one(json.loads(body), files)
        for file in files:
            os.close(file)


def _wait_for_one(request: tuple[list[str], dict[str, str], str], files: list[int]) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    tells = socket.socket(fileno=files.pop())
    pid = os.fork()
    if pid == 0:
        tells.close()
        _become(request, files)
    tells.send(b"%d" % pid)
    _, ended = os.waitpid(pid, 0)
    # The caller may have given up.
    with contextlib.suppress(OSError):
        tells.send(b"%d" % os.waitstatus_to_exitcode(ended))
    os._exit(0)


def _become(request: tuple[list[str], dict[str, str], str], streams: list[int]) -> NoReturn:
    """Be the program that the request asks for, to the end."""
    from sluicegate.cli.main import main

    arguments, environment, place = request
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # Those of the process that forked were made for its own streams.
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(place)
    random.seed()
    sys.argv = ["sluicegate", *arguments]
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        for written in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                written.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))

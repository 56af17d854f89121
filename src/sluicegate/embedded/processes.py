"""Seeing and ending the processes of an earlier server, whose supervisor is gone.

They are told by their working directory, which is the cluster. Where that may not be read (root without the ptrace
capability), the postmaster is told by its command line, and PostgreSQL's own check of shared memory does the rest.
Zombies do no harm and are not counted: their pid is only taken until somebody reaps them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "ServerProcess",
    "end_old_server",
    "reap",
    "reap_as_process_1",
    "reap_remembered",
    "remember",
    "server_processes",
    "still_the_same",
]

_PROC = Path("/proc")
_PROGRAMS = (b"postgres", b"postmaster", b"initdb")
_PAUSE_SECONDS = 0.01
_FAST_SHUTDOWN_SECONDS = 60.0
_QUIT_SECONDS = 5.0


@dataclass(frozen=True)
class ServerProcess:
    """``is_postmaster``: it is the server itself, not one of its children."""

    pid: int
    is_postmaster: bool


def server_processes(cluster: Path, sockets: Path | None = None) -> list[ServerProcess]:
    """The living processes of a server on this cluster, whoever started it.

    By ``sockets``, the server's socket directory, it is also known in its first moment, before it works in the cluster.
    """
    try:
        found = cluster.stat()
    except FileNotFoundError:
        return []
    postmaster = _recorded_postmaster(cluster)
    return [
        ServerProcess(pid, pid == postmaster)
        for pid in _living()
        if _works_in(pid, found) or (sockets is not None and pid == postmaster and _serves(pid, sockets))
    ]


def end_old_server(cluster: Path, sockets: Path) -> None:
    """Return when no process of an earlier server is left, and its stale lock file with them.

    A living postmaster is asked for a fast shutdown, and given a minute; children without one are told to quit, since
    everything they did will be recovered anyway.
    """
    begin = time.monotonic()
    asked: set[tuple[int, int]] = set()
    while processes := server_processes(cluster, sockets):
        waited = time.monotonic() - begin
        orphaned = not any(process.is_postmaster for process in processes)
        for process in processes:
            number = _how_to_end(process, orphaned=orphaned, waited=waited)
            if number is not None and (process.pid, number) not in asked:
                asked.add((process.pid, number))
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)
        reap()
        time.sleep(_PAUSE_SECONDS)
    reap()
    (cluster / "postmaster.pid").unlink(missing_ok=True)


def reap() -> list[tuple[int, int]]:
    """Collect every ended child, our own and adopted ones: (pid, wait status) of each."""
    ended = []
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended.append((pid, status))
    return ended


def remember(pid: int) -> dict[str, int]:
    """A process so that it is recognised later: its pid, and when it started in clock ticks since boot."""
    return {"pid": pid, "started": int(_stat(pid)[19])}


def still_the_same(memory: object) -> int | None:
    """The pid of a remembered process if it exists still, be it as a zombie; else None."""
    if not isinstance(memory, dict):
        return None
    pid, started = memory.get("pid"), memory.get("started")
    if not isinstance(pid, int) or not isinstance(started, int):
        return None
    try:
        return pid if int(_stat(pid)[19]) == started else None
    except (OSError, IndexError, ValueError):
        return None


def reap_remembered(memory: object) -> None:
    """Collect a remembered process if it ended as our child. Nobody else's child is touched."""
    pid = still_the_same(memory)
    if pid is not None:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def reap_as_process_1() -> None:
    """Where we are process 1, collect what a killed server has left: its children end up as ours.

    They are told by their name and by the session of its own that each child of a server has.
    """
    if os.getpid() != 1:
        return
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            with suppress(OSError, IndexError, ChildProcessError):
                state, parent, _, session, *_ = _stat(pid)
                if (state, parent, session) == ("Z", "1", str(pid)) and _name(pid) == "postgres":
                    os.waitpid(pid, os.WNOHANG)


def _how_to_end(process: ServerProcess, *, orphaned: bool, waited: float) -> int | None:
    patience = 0.0 if orphaned else _FAST_SHUTDOWN_SECONDS
    if waited >= patience + _QUIT_SECONDS:
        return signal.SIGKILL
    if waited >= patience:
        return signal.SIGQUIT
    return signal.SIGINT if process.is_postmaster else None


def _living() -> Iterator[int]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            with suppress(OSError, IndexError):
                if _stat(pid)[0] not in "ZX":
                    yield pid


def _stat(pid: int) -> list[str]:
    """The fields after the command's name, which may itself hold spaces and parentheses."""
    text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    return text[text.rindex(")") + 1 :].split()


def _name(pid: int) -> str:
    text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    return text[text.index("(") + 1 : text.rindex(")")]


def _works_in(pid: int, cluster: os.stat_result) -> bool:
    try:
        found = (_PROC / str(pid) / "cwd").stat()
    except OSError:
        return False
    same = (found.st_dev, found.st_ino) == (cluster.st_dev, cluster.st_ino)
    return same and _is_postgres(_command_line(pid))


def _is_postgres(arguments: list[bytes]) -> bool:
    # A shell or an editor may stand in the cluster too. Children of the server call themselves "postgres: ...".
    if not arguments:
        return False
    return arguments[0].startswith(b"postgres:") or arguments[0].rpartition(b"/")[2] in _PROGRAMS


def _serves(pid: int, sockets: Path) -> bool:
    # The socket directory has a random name of its own, so no other server has it among its arguments.
    return b"unix_socket_directories=" + os.fsencode(sockets) in _command_line(pid)


def _command_line(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _recorded_postmaster(cluster: Path) -> int | None:
    try:
        first = (cluster / "postmaster.pid").read_text(errors="replace").splitlines()[0]
        return int(first)
    except (OSError, IndexError, ValueError):
        return None

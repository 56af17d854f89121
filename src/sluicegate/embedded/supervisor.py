"""The process that owns the private PostgreSQL: ``python -m sluicegate.embedded.supervisor DATA_DIR``.

It is a process of its own, so that whoever happened to start it may end without harm to the others, and it has one
thread, because the kernel ends PostgreSQL when the thread that started it ends. Commands hold a connection to its
control socket for as long as they live; some seconds after the last one is gone it stops PostgreSQL and ends.

It imports the standard library only, and everything at its start: the package may be upgraded while it runs.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from sluicegate.embedded.account import choose_account
from sluicegate.embedded.binaries import probe
from sluicegate.embedded.cluster import Cluster
from sluicegate.embedded.control import Gone, connect, encode, refusal
from sluicegate.embedded.failures import Site, explain
from sluicegate.embedded.guests import Guests
from sluicegate.embedded.keeper import Keeper
from sluicegate.embedded.layout import DataDir, read_record
from sluicegate.embedded.lifecycle import Lifecycle
from sluicegate.embedded.processes import still_the_same
from sluicegate.embedded.sockets import SocketDir
from sluicegate.errors import EmbeddedError

__all__ = ["main"]

_PR_SET_CHILD_SUBREAPER = 36
_LOCK_SECONDS = 90.0
_SOCKETS_SECONDS = 2.0
_LOCK_PAUSE_SECONDS = 0.01


def main(arguments: list[str] | None = None) -> None:
    options = _parse(arguments)
    _leave_the_starter()
    data = DataDir(options.data_dir)
    lifecycle = None
    try:
        data.require_ours()
        lock = _take_lock(data)
        if lock is None:
            _report({"ok": True})
            return
        account = choose_account(data.cluster)
        sockets = SocketDir.open(data, account, options.socket_dir)
        binaries = probe(options.carrier, options.bindir, account)
        cluster = Cluster(data, sockets, account, binaries, options.port)
        lifecycle = Lifecycle(Keeper(cluster, lock), Guests(sockets.control), options.linger)
        lifecycle.start()
    except (EmbeddedError, OSError) as problem:
        error = _explained(data, problem)
        if lifecycle is not None:
            lifecycle.fail(error)
        _report(refusal(error))
        raise SystemExit(1) from problem
    _report({"ok": True})
    lifecycle.run()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sluicegate.embedded.supervisor")
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--bindir", type=Path, required=True)
    parser.add_argument("--carrier", default="bindir")
    parser.add_argument("--linger", type=float, required=True)
    parser.add_argument("--port", type=int)
    parser.add_argument("--socket-dir", type=Path)
    return parser.parse_args(arguments)


def _leave_the_starter() -> None:
    """Become nobody's child, in no terminal, and the one who reaps what a killed postmaster leaves behind."""
    if os.fork() != 0:
        os._exit(0)
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _take_lock(data: DataDir) -> int | None:
    """The lock that makes this the only supervisor, or None if there is another one, at work.

    One that is just ending has taken its address away and is waited for. Raises EmbeddedError for one that cannot be
    reached.
    """
    lock = os.open(data.supervisor_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    begin = time.monotonic()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _answers(data):
                return None
            waited = time.monotonic() - begin
            if waited > _LOCK_SECONDS or (waited > _SOCKETS_SECONDS and _has_lost_its_sockets(data)):
                raise _unreachable(data, os.pread(lock, 32, 0)) from None
            time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
            return lock


def _has_lost_its_sockets(data: DataDir) -> bool:
    """Whether the other one is at home, as far as it knows, but somebody has removed its socket."""
    record = read_record(data)
    control = record.get("control")
    return (
        isinstance(control, str) and not Path(control).exists() and still_the_same(record.get("supervisor")) is not None
    )


def _unreachable(data: DataDir, holder: bytes) -> EmbeddedError:
    pid = holder.decode(errors="replace").strip() or "unknown"
    return EmbeddedError(
        f"The private PostgreSQL in {data.path} is running, but its supervisor (process {pid}) cannot be reached: it "
        "hangs, or its socket has been removed.",
        next_step=f"End it with `kill {pid}`, or with `kill -9 {pid}` if it hangs: PostgreSQL stops cleanly, and the "
        f"next command starts it anew. {data.log} may say more.",
    )


def _answers(data: DataDir) -> bool:
    try:
        connect(data).close()
    except Gone:
        return False
    return True


def _explained(data: DataDir, problem: EmbeddedError | OSError) -> EmbeddedError:
    if isinstance(problem, EmbeddedError):
        return problem
    return explain(str(problem), Site(data.path, data.log), "start")


def _report(message: dict[str, object]) -> None:
    """Tell the starter, once, how the start went, and let go of its pipe."""
    with suppress(OSError):
        os.write(sys.stdout.fileno(), encode(message))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


if __name__ == "__main__":
    main()

"""Keeping one server running: start it, see it end, start it again ever more slowly, stop it."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from enum import Enum, auto

from sluicegate.embedded.binaries import Binaries
from sluicegate.embedded.cluster import Cluster
from sluicegate.embedded.failures import explain, held_by_dying_server
from sluicegate.embedded.layout import write_atomically
from sluicegate.embedded.logs import log_since, log_size, rotate
from sluicegate.embedded.processes import end_old_server, reap, remember
from sluicegate.errors import EmbeddedError

__all__ = ["LOOK_SECONDS", "Keeper", "State", "fingerprint"]

LOOK_SECONDS = 0.003
_RESTART_DELAYS_SECONDS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
_STEADY_SECONDS = 60.0
_DYING_SECONDS = 20.0
_FAST_SHUTDOWN_SECONDS = 60.0
_QUIT_SECONDS = 5.0


class State(Enum):
    """``WAITING``: there is no server, and ``restart_at`` says when there will be one. ``OVER``: nor will there be."""

    STARTING = auto()
    RUNNING = auto()
    WAITING = auto()
    OVER = auto()


class Keeper:
    """The server of one cluster, from its first start to its last end.

    ``lock`` is the descriptor of the supervisor's lock file. All of it belongs to the main thread.
    """

    def __init__(self, cluster: Cluster, lock: int) -> None:
        self.cluster = cluster
        self.state = State.WAITING
        self.pid: int | None = None
        self.restart_at = 0.0
        self.fingerprint: tuple[int, ...] | None = None
        self.failure: EmbeddedError | None = None
        self._lock = lock
        self._log_offset = 0
        self._spawned_at = 0.0
        self._failures = 0

    def start(self) -> None:
        """Bring the server up, making the cluster if need be; return when it is ready. Raises EmbeddedError."""
        self._write_record()
        self._end_old_server()
        self.cluster.ensure()
        give_up_at = time.monotonic() + _DYING_SECONDS
        while True:
            self._spawn()
            while self.state is State.STARTING:
                time.sleep(LOOK_SECONDS)
                self._look()
            if self.state is State.RUNNING:
                return
            output = log_since(self.cluster.data.log, self._log_offset)
            if not held_by_dying_server(output) or time.monotonic() > give_up_at:
                raise explain(output, self.cluster.site, "start")
            time.sleep(LOOK_SECONDS)

    def watch(self) -> None:
        """See what became of the server, and start it again when it is time."""
        before = self.state
        self._look()
        if before in (State.RUNNING, State.STARTING) and self.pid is None:
            self._plan_restart()
        if self.state is State.WAITING and time.monotonic() >= self.restart_at:
            self._restart()
        rotate(self.cluster.data.log)

    def stop(self) -> None:
        """End the server with a fast shutdown; after a minute less gently."""
        begin = time.monotonic()
        steps = [(0.0, signal.SIGINT), (_FAST_SHUTDOWN_SECONDS, signal.SIGQUIT)]
        steps.append((_FAST_SHUTDOWN_SECONDS + _QUIT_SECONDS, signal.SIGKILL))
        while self.pid is not None:
            if steps and time.monotonic() - begin >= steps[0][0]:
                _, number = steps.pop(0)
                with suppress(ProcessLookupError):
                    os.kill(self.pid, number)
            time.sleep(LOOK_SECONDS)
            self._look()
        if self.owns_directory():
            self._end_old_server()

    def owns_directory(self) -> bool:
        """Whether the data directory is still the one we have locked: it may have been removed, or made anew."""
        try:
            found = self.cluster.data.supervisor_lock.stat()
        except OSError:
            return False
        held = os.fstat(self._lock)
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)

    def _end_old_server(self) -> None:
        end_old_server(self.cluster.data.cluster, self.cluster.sockets.server)

    def _spawn(self) -> None:
        rotate(self.cluster.data.log)
        self._log_offset = log_size(self.cluster.data.log)
        self.fingerprint = fingerprint(self.cluster.binaries)
        self.pid = self.cluster.start()
        self._spawned_at = time.monotonic()
        self.state = State.STARTING
        # Only for those who recognise the dead by it; on a full disk the server's own words matter more.
        with suppress(OSError):
            self._write_record()

    def withdraw(self) -> None:
        """Take our address away: whoever looks for us from now on starts another supervisor, which waits for our end."""
        if not self.owns_directory():
            return
        try:
            self._write_record(at_home=False)
        except OSError:
            self.cluster.data.record.unlink(missing_ok=True)

    def _write_record(self, *, at_home: bool = True) -> None:
        """Leave our address for those who look for us, and what is needed to recognise us when we are dead."""
        record = {
            "control": str(self.cluster.sockets.control) if at_home else None,
            "supervisor": remember(os.getpid()),
            "server": None if self.pid is None else remember(self.pid),
        }
        write_atomically(self.cluster.data.record, json.dumps(record) + "\n")

    def _look(self) -> None:
        ended = [pid for pid, _ in reap()]
        if self.pid is not None and self.pid in ended:
            self.pid = None
            self.state = State.WAITING
        elif self.state is State.STARTING and self.pid is not None and self.cluster.is_ready(self.pid):
            self.state = State.RUNNING

    def _plan_restart(self) -> None:
        """The server ended by itself or was killed."""
        if not self.owns_directory():
            self.state = State.OVER
            return
        if time.monotonic() - self._spawned_at >= _STEADY_SECONDS:
            self._failures = 0
        self._end_old_server()
        if self._failures >= len(_RESTART_DELAYS_SECONDS) or not self.cluster.exists():
            output = log_since(self.cluster.data.log, self._log_offset)
            self._give_up(explain(output, self.cluster.site, "keep running"))
            return
        self.restart_at = time.monotonic() + _RESTART_DELAYS_SECONDS[self._failures]
        self._failures += 1

    def _restart(self) -> None:
        try:
            self._spawn()
        except EmbeddedError as error:
            self._give_up(error)
        except OSError as error:
            self._give_up(explain(str(error), self.cluster.site, "start again"))

    def _give_up(self, error: EmbeddedError) -> None:
        self.failure = error
        self.state = State.OVER


def fingerprint(binaries: Binaries) -> tuple[int, ...] | None:
    """What changes when the programs are replaced; None if they are gone."""
    try:
        found = binaries.program("postgres").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

"""One command in the guardian's care, from its fork until nothing is left of it."""

import os
import signal
from collections.abc import Callable
from typing import NoReturn

from sluicegate.worker.guardian import procfs

NEVER = float("inf")
_PR_SET_PDEATHSIG = 1

Prctl = Callable[[int, int], object]


class Command:
    """A command that has been forked; ``status`` is readable once it has become its program, or could not."""

    def __init__(self, key: bytes, pid: int, status: int, term_at: float, kill_at: float) -> None:
        self.key = key
        self.pid = pid
        self.status = status
        self.exited = False
        self.reaped = False
        self.ended_by_lease = False
        self.wiped_by = NEVER
        self._lease_term_at = term_at
        self._lease_kill_at = kill_at
        self._kill_at = NEVER

    @property
    def due(self) -> float:
        """When the next signal is to be sent."""
        return min(self._lease_term_at, self._lease_kill_at, self._kill_at)

    def renew(self, term_at: float, kill_at: float) -> None:
        self._lease_term_at, self._lease_kill_at = term_at, kill_at

    def kill(self, at: float) -> None:
        """SIGTERM now, SIGKILL at that time unless one is due earlier."""
        self._signal(signal.SIGTERM)
        self._kill_at = min(self._kill_at, at)

    def send_what_is_due(self, now: float) -> None:
        if self._lease_term_at <= now:
            self._lease_term_at = NEVER
            self.ended_by_lease = self.ended_by_lease or not self.exited
            self._signal(signal.SIGTERM)
        if min(self._lease_kill_at, self._kill_at) <= now:
            self._lease_kill_at = self._kill_at = NEVER
            self._signal(signal.SIGKILL)

    def exit_status(self) -> tuple[bytes, int] | None:
        """``code`` or ``signal`` and its number when the command has ended, told once.

        It is left unreaped: until ``wipe``, no other process or group can get its number.
        """
        if self.exited or self.reaped or self.status >= 0:
            return None
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        self.exited = True
        return (b"code" if found.si_code == os.CLD_EXITED else b"signal"), found.si_status

    def wipe(self, *, look_around: bool) -> bool:
        """Kill and reap what is left; True once nothing is. ``look_around`` for what has left the group."""
        procfs.kill_group(self.pid, signal.SIGKILL)
        strays = procfs.members(self.pid) - {self.pid} if look_around else set()
        for pid in strays:
            procfs.kill(pid, signal.SIGKILL)
        if not self.reaped:
            self.reaped = os.waitpid(self.pid, os.WNOHANG)[0] != 0
        return self.reaped and not strays and not procfs.kill_group(self.pid, signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """Signal the group, and what left the group but not the session or the family of the command."""
        outside = procfs.members(self.pid) - {self.pid}
        procfs.kill_group(self.pid, number)
        for pid in outside:
            if procfs.group_of(pid) != self.pid:
                procfs.kill(pid, number)


def become(
    arguments: list[bytes],
    variables: list[bytes],
    streams: list[int],
    *,
    status: int,
    guardian: int,
    prctl: Prctl | None,
) -> NoReturn:
    """In a forked child: turn into the command. ``status`` is closed by that, or told the error's number first."""
    number = 0
    try:
        os.setsid()
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The signal is not sent for a guardian that had died before it was asked for.
        if os.getppid() == guardian:
            for target, descriptor in enumerate(streams):
                os.dup2(descriptor, target)
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(ignored, signal.SIG_DFL)
            environment = dict(os.environb)
            for variable in variables:
                name, _, value = variable.partition(b"=")
                environment[name] = value
            os.execvpe(arguments[0], arguments, environment)  # noqa: S606 - no shell is what is wanted
    except OSError as error:
        number = error.errno or 0
    finally:
        try:
            os.write(status, b"%d" % number)
        finally:
            os._exit(127)

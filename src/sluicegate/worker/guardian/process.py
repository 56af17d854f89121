"""The guardian's own process: a loop over the worker's socket, its commands and their deadlines."""

import contextlib
import errno
import os
import selectors
import signal
import socket
import sys
import time

from sluicegate.worker.guardian import procfs
from sluicegate.worker.guardian.command import NEVER, Command, Prctl, become
from sluicegate.worker.guardian.frames import Frames, pack

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STREAMS = 3
_LOOK_AT_PARENT = 2.0
_WIPE_PAUSE = 0.005
_WIPE_TIME = 5.0


class Process:
    """Serves the worker at the other end of the socket until it has gone."""

    def __init__(self, worker: socket.socket, folder: str) -> None:
        self._worker = worker
        self._folder = folder
        self._frames = Frames()
        self._streams: list[list[int]] = []
        self._commands: dict[bytes, Command] = {}
        self._parent = os.getppid()
        self._pid = os.getpid()
        self._prctl = _find_prctl()
        if self._prctl is not None:
            # What a command leaves behind becomes our child, so that we can find it.
            self._prctl(_PR_SET_CHILD_SUBREAPER, 1)
            # Stopped, by a command perhaps, we could not see that the worker has died; its commands would go on for ever.
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
        self._woken = _take_signals()
        self._selector = selectors.DefaultSelector()
        self._selector.register(worker, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve, then leave nothing behind."""
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while self._serve():
                    pass
        finally:
            self._kill_everything()
        self._remove_folder()

    def _serve(self) -> bool:
        for key, _ in self._selector.select(self._patience()):
            if key.fileobj is self._worker:
                if not self._hear():
                    return False
            elif key.fileobj == self._woken:
                os.read(self._woken, 4096)
                self._look_for_exits()
            else:
                self._look_at_start(key.data)
        now = time.monotonic()
        for command in list(self._commands.values()):
            if command.due <= now:
                command.send_what_is_due(now)
            if command.wiped_by < NEVER:
                self._wipe(command, now)
        # A socket that somebody else still holds does not keep the commands of a dead worker alive.
        return os.getppid() == self._parent

    def _patience(self) -> float:
        if any(command.wiped_by < NEVER for command in self._commands.values()):
            return _WIPE_PAUSE
        due = min((command.due for command in self._commands.values()), default=NEVER)
        return max(0.0, min(due - time.monotonic(), _LOOK_AT_PARENT))

    def _hear(self) -> bool:
        data, streams, flags, _ = socket.recv_fds(self._worker, 65536, _STREAMS)
        if streams or flags & socket.MSG_CTRUNC:
            # One message brings the streams of one command; too few of them mean that descriptors have run out here.
            for descriptor in streams:
                os.set_inheritable(descriptor, False)
            self._streams.append(streams)
        if not data:
            return False
        for verb, key, *rest in self._frames.feed(data):
            if verb == b"start":
                self._start(key, rest)
            elif (command := self._commands.get(key)) is not None:
                self._order(command, verb, rest)
        return True

    def _order(self, command: Command, verb: bytes, rest: list[bytes]) -> None:
        now = time.monotonic()
        if verb == b"lease":
            command.renew(_instant(rest[0]), _instant(rest[1]))
        elif verb == b"kill":
            command.kill(now + float(rest[0]))
        elif verb == b"end":
            command.wiped_by = now + _WIPE_TIME
            self._wipe(command, now)

    def _start(self, key: bytes, rest: list[bytes]) -> None:
        term_at, kill_at, count = _instant(rest[0]), _instant(rest[1]), int(rest[2])
        streams = self._streams.pop(0)
        pipe: tuple[int, ...] = ()
        try:
            pipe = os.pipe() if len(streams) == _STREAMS else _out_of_descriptors()
            pid = os.fork()
        except OSError as error:
            for descriptor in pipe:
                os.close(descriptor)
            self._tell(b"refused", key, b"fork", b"%d" % (error.errno or 0))
        else:
            if pid == 0:
                become(
                    rest[3 : 3 + count],
                    rest[3 + count :],
                    streams,
                    status=pipe[1],
                    guardian=self._pid,
                    prctl=self._prctl,
                )
            os.close(pipe[1])
            command = Command(key, pid, pipe[0], term_at, kill_at)
            self._commands[key] = command
            self._selector.register(command.status, selectors.EVENT_READ, command)
        finally:
            for descriptor in streams:
                os.close(descriptor)

    def _look_at_start(self, command: Command) -> None:
        told = os.read(command.status, 16)
        self._selector.unregister(command.status)
        os.close(command.status)
        command.status = -1
        if told:
            os.waitpid(command.pid, 0)
            del self._commands[command.key]
            self._tell(b"refused", command.key, b"exec", told)
        else:
            self._tell(b"started", command.key, b"%d" % command.pid)
            self._look_for_exits()

    def _look_for_exits(self) -> None:
        for command in self._commands.values():
            if (status := command.exit_status()) is not None:
                how, number = status
                cause = b"lease" if command.ended_by_lease else b""
                self._tell(b"exited", command.key, how, b"%d" % number, cause)
        self._reap_adopted()

    def _wipe(self, command: Command, now: float) -> None:
        gone = command.wipe(look_around=bool(self._adopted()))
        self._reap_adopted()
        if gone or (command.reaped and now >= command.wiped_by):
            self._commands.pop(command.key, None)
            self._tell(b"ended", command.key)

    def _adopted(self) -> list[int]:
        """Our children that no start of ours made: processes whose own parent has died."""
        leaders = {command.pid for command in self._commands.values() if not command.reaped}
        return [pid for pid in procfs.children(self._pid) if pid not in leaders]

    def _reap_adopted(self) -> None:
        for pid in self._adopted():
            os.waitpid(pid, os.WNOHANG)

    def _kill_everything(self) -> None:
        deadline = time.monotonic() + 2 * _WIPE_TIME
        while time.monotonic() < deadline:
            for command in self._commands.values():
                if not command.reaped:
                    procfs.kill_group(command.pid, signal.SIGKILL)
                    procfs.kill(command.pid, signal.SIGKILL)
            for pid in procfs.family({self._pid}, procfs.processes()) - {self._pid}:
                procfs.kill(pid, signal.SIGKILL)
            try:
                while (reaped := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                    for command in self._commands.values():
                        command.reaped = command.reaped or command.pid == reaped
            except ChildProcessError:
                return
            time.sleep(_WIPE_PAUSE)

    def _remove_folder(self) -> None:
        with contextlib.suppress(OSError):
            import shutil  # loaded when it is needed: at the end

            shutil.rmtree(self._folder, ignore_errors=True)

    def _tell(self, *fields: bytes) -> None:
        self._worker.sendall(pack(*fields))


def _take_signals() -> int:
    """Be woken by the end of a child, and ended by nothing but the worker's end. A descriptor that becomes readable.

    The signals have a handler because one that is ignored would be ignored by the commands too.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return readable


def _find_prctl() -> Prctl | None:
    if sys.platform != "linux":
        return None
    try:
        import ctypes
    except ImportError:  # a Python that was built without it
        return None
    prctl: Prctl = ctypes.CDLL(None).prctl
    return prctl


def _out_of_descriptors() -> tuple[int, ...]:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _instant(field: bytes) -> float:
    return float(field) or NEVER


def main(descriptor: int, folder: str) -> None:
    """Guard for the worker at the other end of the socket ``descriptor``; its private folder is removed at the end."""
    os.set_inheritable(descriptor, False)
    Process(socket.socket(fileno=descriptor), folder).run()

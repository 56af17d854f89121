"""The worker's side of the guardian."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import sluicegate
from sluicegate.worker.guardian.frames import Frames, pack

_HOME = Path(sluicegate.__file__).parents[1]
_SCRIPT = (
    "import sys; sys.path.insert(0, sys.argv[2]); "
    "from sluicegate.worker.guardian.process import main; main(int(sys.argv[1]), sys.argv[3])"
)
# How long the guardian may leave its socket unread, in seconds, before it is given up.
_PATIENCE = 5.0
_FAREWELL = 15.0
# How long it may take to start a command or to kill the rest of one, on a machine that is busy beyond measure.
_ANSWER = 60.0


class GuardianLost(Exception):
    """The guardian ended, and with it every command it guarded."""


class CannotStart(Exception):
    """A command was not started.

    ``of_machine`` tells a fault of this machine (no processes, no descriptors, no memory left) from one of the command.
    """

    def __init__(self, number: int, *, of_machine: bool) -> None:
        super().__init__(os.strerror(number))
        self.number = number
        self.of_machine = of_machine


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended: by an exit code or by a signal; ``by_lease`` if the guardian killed it at its lease's end."""

    code: int | None
    signal: int | None
    by_lease: bool = False


class Child:
    """A running command. ``exited`` gives its Exit, or raises GuardianLost."""

    def __init__(self, guardian: Guardian, key: bytes, lease: tuple[float, float]) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.exited: asyncio.Future[Exit] = loop.create_future()
        self._started: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._guardian = guardian
        self._key = key
        self._lease = lease

    def keep_until(self, term_at: float, kill_at: float) -> None:
        """Let the guardian end the command at these times of ``time.monotonic()``, whatever the worker does."""
        if self._lease != (term_at, kill_at):
            self._lease = (term_at, kill_at)
            self._guardian.send(pack(b"lease", self._key, *_instants(self._lease)))

    def kill(self, grace: float) -> None:
        """SIGTERM for the command, its group and what came from them; SIGKILL after ``grace`` seconds."""
        self._guardian.send(pack(b"kill", self._key, b"%f" % grace))

    async def end(self) -> None:
        """SIGKILL whatever the command has left running, and return once it is gone."""
        self._guardian.send(pack(b"end", self._key))
        await self._guardian.answered(self._ended)

    async def started(self) -> None:
        """Return once the command runs. Raises CannotStart, GuardianLost."""
        await self._guardian.answered(self._started)

    def hear(self, verb: bytes, rest: Sequence[bytes]) -> None:
        """A message about this command."""
        if verb == b"started":
            self.pid = int(rest[0])
            self._started.set_result(None)
        elif verb == b"refused":
            self._started.set_exception(CannotStart(int(rest[1]), of_machine=_of_machine(rest[0], int(rest[1]))))
        elif verb == b"exited":
            number = int(rest[1])
            code, killed = (number, None) if rest[0] == b"code" else (None, number)
            self.exited.set_result(Exit(code, killed, by_lease=rest[2] == b"lease"))
        elif verb == b"ended":
            self._ended.set_result(None)

    def lose(self) -> None:
        """The guardian is gone: kill what it can no longer kill."""
        if self.pid and not self._ended.done():
            _kill_group(self.pid)
        if not self._ended.done():
            self._ended.set_result(None)
        for waiting in (self._started, self.exited):
            if not waiting.done():
                waiting.set_exception(GuardianLost())
                # Whoever still waits sees it; if nobody does, that is no fault to report.
                waiting.exception()


class Guardian:
    """Starts commands through a guardian process, which is started again when it was lost.

    ``folder`` is the worker's private folder, which the guardian removes at the end; make it after ``open``.
    ``environment`` is what every command finds, before its own variables.
    """

    def __init__(self, folder: Path, environment: Mapping[bytes, bytes]) -> None:
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._frames = Frames()
        self._children: dict[bytes, Child] = {}
        self._keys = count(1)

    @property
    def pid(self) -> int | None:
        """The number of the guardian process, None while there is none."""
        return None if self._process is None else self._process.pid

    def open(self) -> None:
        """Start the guardian process if there is none. Raises OSError."""
        if self._socket is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _SCRIPT, str(theirs.fileno()), str(_HOME), str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=self._environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.settimeout(_PATIENCE)
        self._socket = ours
        self._frames = Frames()
        asyncio.get_running_loop().add_reader(ours, self._hear)

    async def start(
        self,
        arguments: Sequence[bytes],
        variables: Mapping[bytes, bytes],
        streams: tuple[int, int, int],
        lease: tuple[float, float],
    ) -> Child:
        """Start a command with these standard streams, as the leader of a session and process group of its own.

        ``lease`` is as for ``Child.keep_until``. Raises CannotStart, GuardianLost, and OSError if no guardian can be
        started.
        """
        self.open()
        key = b"%d" % next(self._keys)
        child = Child(self, key, lease)
        self._children[key] = child
        pairs = [name + b"=" + value for name, value in variables.items()]
        self.send(pack(b"start", key, *_instants(lease), b"%d" % len(arguments), *arguments, *pairs), streams)
        await child.started()
        return child

    async def answered(self, answer: asyncio.Future[None]) -> None:
        """Wait for something the guardian does at once; one that does not is as good as lost."""
        await asyncio.wait((answer,), timeout=_ANSWER)
        if not answer.done():
            self._lose()
        answer.result()

    def send(self, frame: bytes, streams: Sequence[int] = ()) -> None:
        """Send a frame; what cannot be sent is answered by the loss of the guardian."""
        if self._socket is None:
            return
        try:
            if streams:
                sent = socket.send_fds(self._socket, [frame[:1]], list(streams))
                frame = frame[sent:]
            self._socket.sendall(frame)
        except OSError:
            self._lose()

    async def close(self) -> None:
        """Let the guardian kill what is left and end. Twice is fine."""
        process, self._process = self._process, None
        self._part()
        if process is not None:
            await asyncio.to_thread(_see_off, process)

    def _hear(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        for verb, key, *rest in self._frames.feed(data):
            child = self._children.get(key)
            if verb in (b"refused", b"ended"):
                self._children.pop(key, None)
            if child is not None:
                child.hear(verb, rest)

    def _lose(self) -> None:
        """The guardian died or does not answer: make sure of the first."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        self._part()

    def _part(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        self._socket = None
        lost, self._children = self._children, {}
        for child in lost.values():
            child.lose()


def _instants(lease: tuple[float, float]) -> tuple[bytes, bytes]:
    return b"%f" % lease[0], b"%f" % lease[1]


def _of_machine(stage: bytes, number: int) -> bool:
    return stage == b"fork" or number in (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _see_off(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_FAREWELL)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

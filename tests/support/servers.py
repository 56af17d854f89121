"""The PostgreSQL servers of a test run: at most one of each kind, started when first asked for, shared by all workers.

Kinds are ``18`` (the embedded binaries) and ``15`` (Debian's, copied), each with fsync off, or on as ``18-durable``.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.logs import server_log

ROOT = Path(__file__).resolve().parents[2]
_VARIABLE = "SLUICEGATE_TEST_RUN_DIR"
_ROOM = 8 << 30


@dataclass(frozen=True)
class Server:
    """A running server. ``bin`` holds its own initdb, pg_dump and so on; ``place`` its sockets and its log."""

    kind: str
    place: Path
    bin: Path
    data: Path
    pid: int
    password: str

    @property
    def major(self) -> int:
        return int(self.kind.partition("-")[0])

    @property
    def log(self) -> Path:
        return self.place / "server.log"

    def log_text(self) -> str:
        return server_log(self.log)

    def dsn(self, database: str, *, user: str = "postgres", password: str | None = None) -> str:
        """A URI for ``database``; without a user, for the superuser."""
        secret = self.password if password is None else password
        return f"postgresql://{user}:{secret}@/{database}?host={self.place}"


class TestRun:
    """The directory of one run and everything in it. The test runner makes it, its workers find it."""

    __test__ = False

    def __init__(self, place: Path) -> None:
        self.place = place
        self._alive: IO[bytes] | None = None

    @classmethod
    def create(cls) -> "TestRun":
        """Make the directory, keep it alive, and let child processes find it through the environment."""
        place = Path(tempfile.mkdtemp(prefix="sluicegate-test-", dir=_roomy_memory() or "/tmp"))
        place.chmod(0o755)
        os.mkfifo(place / "alive")
        run = cls(place)
        # Opened for reading too, so that opening does not wait for the first holder.
        run._alive = os.fdopen(os.open(place / "alive", os.O_RDWR | os.O_CLOEXEC), "r+b", buffering=0)
        os.environ[_VARIABLE] = str(place)
        return run

    @classmethod
    def current(cls) -> "TestRun":
        return cls(Path(os.environ[_VARIABLE]))

    def server(self, kind: str) -> Server:
        """The server of that kind, started now if nobody has asked for it before."""
        place = self.place / kind
        with self.locked(f"{kind}.lock"):
            if not (place / "ready.json").exists():
                self._start(place, kind)
        facts = json.loads((place / "ready.json").read_text())
        return Server(kind, place, Path(facts["bin"]), Path(facts["data"]), facts["pid"], facts["password"])

    def _start(self, place: Path, kind: str) -> None:
        version, _, durability = kind.partition("-")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        place.chmod(0o755)
        with (place / "holder.txt").open("wb") as output:
            holder = subprocess.Popen(
                [sys.executable, "-m", "tests.support.holder", str(place), version, durability],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        (place / "holder.pid").write_text(str(holder.pid))
        while not (place / "ready.json").exists():
            if holder.poll() is not None:
                raise RuntimeError(f"the {kind} test server did not start:\n{(place / 'holder.txt').read_text()}")
            time.sleep(0.02)
        # It is meant to outlive this process: not ours to wait for any more.
        holder.returncode = 0

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        with (self.place / name).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def stop(self) -> None:
        """End every server and wait for it. The directory stays, with the logs and without the data."""
        if self._alive is not None:
            self._alive.close()
            self._alive = None
        deadline = time.monotonic() + 30
        for pid_file in self.place.glob("*/holder.pid"):
            while is_running(int(pid_file.read_text())) and time.monotonic() < deadline:
                time.sleep(0.01)
        for data in self.place.glob("*/data"):
            shutil.rmtree(data, ignore_errors=True)

    def scratch(self) -> Path:
        """A new directory with a short path that every account may enter, unlike pytest's own."""
        place = Path(tempfile.mkdtemp(prefix="s-", dir=self.place))
        place.chmod(0o755)
        return place

    def remove(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)


def _roomy_memory() -> str | None:
    """Where files live in memory, if there is room for a whole run: thousands of databases are made and dropped."""
    place = "/dev/shm"
    with contextlib.suppress(OSError):
        found = os.statvfs(place)
        memory = next(
            line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:")
        )
        usable = not found.f_flag & os.ST_NOEXEC and os.access(place, os.W_OK)
        if usable and min(found.f_bavail * found.f_frsize, int(memory.split()[1]) << 10) >= _ROOM:
            return place
    return None


def is_running(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"

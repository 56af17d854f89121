"""Users of the private PostgreSQL, and commands of theirs that are attached to it."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from sluicegate.embedded import status, stop
from tests.support.servers import ROOT, TestRun, is_running
from tests.support.users import as_user, give, ordinary_user
from tests.support.waiting import eventually

GUEST = Path(__file__).with_name("guest.py")
_START_SECONDS = 120


@dataclass
class Guest:
    """A process that attaches. ``facts`` is what it said at first: an attachment's, or an error's."""

    process: "subprocess.Popen[str]"
    _facts: dict[str, Any] | None = None

    @property
    def facts(self) -> dict[str, Any]:
        if self._facts is None:
            self._facts = self._hear()
        return self._facts

    def _hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            assert self.process.stderr is not None
            raise AssertionError(f"the guest ended without a word: {self.process.stderr.read()}")
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    def tell(self, word: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self._hear()

    def __getattr__(self, name: str) -> Any:
        facts = self.facts
        if name not in facts:
            raise AssertionError(f"not attached: {facts}")
        return facts[name]

    @property
    def pid(self) -> int:
        return self.process.pid

    def refused(self) -> str:
        """What it was told instead of being attached: message and next step."""
        assert "dsn" not in self.facts, self.facts
        assert self.facts["code"] == "embedded"
        return f"{self.facts['message']} {self.facts.get('next_step', '')}"

    def leave(self) -> None:
        """End as a command does: with its work, without a word."""
        assert self.facts
        self.process.communicate(timeout=60)

    def kill(self) -> None:
        """SIGKILL to it and everything in its process group, as a terminal or a shell would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@dataclass
class User:
    """An account with a Python that can run Sluicegate; ``home`` is empty and its own."""

    account: pwd.struct_passwd
    home: Path
    guests: list[Guest] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.account.pw_name

    @property
    def is_root(self) -> bool:
        return self.account.pw_uid == 0

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in ("LANG", "XDG_DATA_HOME")}
        if self.account.pw_uid != os.geteuid():
            kept["XDG_DATA_HOME"] = str(self._data_home())
        paths = (str(ROOT / "src"), sysconfig.get_path("purelib"))
        return {
            **kept,
            "PATH": os.environ.get("PATH", os.defpath) if self.is_root else os.defpath,
            "HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def _data_home(self) -> Path:
        """Shared by all tests of a run, so that the programs are copied once for each account."""
        run = TestRun.current()
        home = run.place / f"data-home-{self.account.pw_uid}"
        with run.locked(f"{home.name}.lock"):
            if not home.exists():
                home.mkdir()
                self.own(home)
        return home

    def popen(self, command: list[str], **options: Any) -> "subprocess.Popen[str]":
        environment = self.environment() | options.pop("environment", {})
        return subprocess.Popen(
            command,
            cwd=options.pop("cwd", "/"),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **as_user(self.account),
            **options,
        )

    def run(self, command: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        process = self.popen(command, **options)
        output, errors = process.communicate(timeout=_START_SECONDS)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def attach(self, data_dir: Path, *, environment: dict[str, str] | None = None, **options: Any) -> Guest:
        """A command that has attached, or has been refused."""
        guest = self.begin(data_dir, environment=environment, **options)
        assert guest.facts
        return guest

    def begin(self, data_dir: Path, *, environment: dict[str, str] | None = None, **options: Any) -> Guest:
        """A command that is about to attach; its ``facts`` wait until it has."""
        popen = {name: options.pop(name) for name in ("preexec_fn", "before", "cwd") if name in options}
        before = popen.pop("before", [])
        command = [*before, self.python(), "-W", "error", str(GUEST), str(data_dir), json.dumps(options)]
        guest = Guest(self.popen(command, environment=environment or {}, **popen))
        self.guests.append(guest)
        return guest

    def python(self) -> str:
        """A Python that this account may run: our own one may lie in root's private home."""
        if self.account.pw_uid == os.geteuid():
            return sys.executable
        found = shutil.which("python3", path=f"{os.defpath}:/usr/local/bin")
        assert found, "no python3 on the path of ordinary users"
        return found

    def own(self, place: Path) -> Path:
        give(place, self.account)
        return place

    def end(self) -> None:
        for guest in self.guests:
            if guest.process.poll() is None:
                os.killpg(guest.process.pid, signal.SIGKILL)
            guest.process.communicate()


def ourselves(home: Path) -> User:
    return User(pwd.getpwuid(os.geteuid()), home)


def somebody_ordinary(home: Path) -> User:
    account = ordinary_user()
    user = User(account, home)
    user.own(home)
    return user


class Place:
    """Data directories of one test, which are empty-handed again at its end."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._made: list[Path] = []

    def new(self, name: str = "data") -> Path:
        """The path of a data directory that does not exist, below a directory everybody may write."""
        self.scratch.chmod(0o1777)
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._made.append(path)
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for path in self._made:
            stop(path, force=True)


def wait_stopped(data_dir: Path, *pids: int) -> None:
    eventually(lambda: not status(data_dir).running, f"the supervisor of {data_dir} ends")
    for pid in pids:
        eventually(lambda pid=pid: not is_running(pid), f"process {pid} ends")  # type: ignore[misc]


def cluster_state(data_dir: Path, bindir: Path) -> str:
    """What pg_controldata says about a cluster that is not running."""
    done = subprocess.run(
        [bindir / "pg_controldata", data_dir / "cluster"],
        capture_output=True,
        text=True,
        check=True,
        env={"LC_ALL": "C"},
    )
    return (
        next(line for line in done.stdout.splitlines() if line.startswith("Database cluster state"))
        .split(":")[1]
        .strip()
    )

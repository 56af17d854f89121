"""``cli`` runs the installed ``sluicegate``, as its own process, on a fresh database."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluicegate.embedded import stop
from tests.support.counts import full
from tests.support.programs import Programs

PROGRAM = Path(sys.executable).with_name("sluicegate")
LONGEST = 120
# What these start, or are, has to be the installed program.
_STARTED = {"demo", "exec", "up", "work"}


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error object of a refusal in JSON; nothing else may be on either stream."""
        assert self.err == ""
        document = self.json
        assert set(document) == {"error"}, document
        assert document["error"]["message"]
        return document["error"]


class Cli:
    """The command line with an environment of its own."""

    def __init__(self, place: Path, dsn: str | None, programs: Programs | None = None) -> None:
        self.place = place
        self._programs = programs
        unwanted = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "PYTHONPATH")
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name not in unwanted and not name.startswith("SLUICEGATE_")
        } | {"HOME": str(place), "XDG_CONFIG_HOME": str(place), "XDG_DATA_HOME": str(place / "data")}
        if dsn is not None:
            self.environment["SLUICEGATE_DSN"] = dsn
        self._started: list[subprocess.Popen[str]] = []

    def __call__(
        self,
        *arguments: str | bytes,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        status: int | None = 0,
    ) -> Answer:
        """Run a command to its end, and check its exit status unless ``status`` is None."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        environment = self.environment | dict(env or {})
        if self._programs is None or _STARTED.intersection(arguments):
            done = subprocess.run(
                [PROGRAM, *arguments],
                input=given,
                env=environment,
                cwd=self.place,
                capture_output=True,
                timeout=LONGEST,
                check=False,
            )
            ended = done.returncode, done.stdout, done.stderr
        else:
            ended = self._programs.run(arguments, given, environment, self.place, LONGEST)
        answer = Answer(ended[0], ended[1].decode(), ended[2].decode())
        assert "Traceback" not in answer.err, answer.err
        assert status is None or answer.status == status, answer
        return answer

    def refused(self, *arguments: str | bytes, stdin: str | bytes = b"", env: Mapping[str, str] | None = None) -> Any:
        """The error of a command that is refused with status 1, in JSON."""
        return self(*arguments, "--json", stdin=stdin, env=env, status=1).error

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
        """A command that runs on; it is killed at the end of the test if it still does."""
        process = subprocess.Popen(
            [PROGRAM, *arguments],
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                "env": self.environment,
                "cwd": self.place,
                "start_new_session": True,
                **options,
            },
        )
        self._started.append(process)
        return process

    def stop(self, process: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> Answer:
        """End a command with a signal and see what it said."""
        process.send_signal(number)
        out, err = process.communicate(timeout=LONGEST)
        assert "Traceback" not in err, err
        return Answer(process.returncode, out, err)

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def _programs() -> Iterator[Programs | None]:
    programs = None if full() else Programs()
    yield programs
    if programs is not None:
        programs.close()


@pytest.fixture
def cli(dsn: str, tmp_path: Path, _programs: Programs | None) -> Iterator[Cli]:
    """The command line on a fresh, migrated database."""
    cli = Cli(tmp_path, dsn, _programs)
    yield cli
    cli.close()


@pytest.fixture
def cli_without_database(tmp_path: Path) -> Iterator[Cli]:
    """The command line with nothing but an address where nobody listens."""
    cli = Cli(tmp_path, f"host={tmp_path} dbname=nowhere")
    yield cli
    cli.close()


@pytest.fixture
def claimed(cli: Cli) -> Callable[..., Any]:
    """``claimed("reviews", payload)``: a job of that queue, enqueued and claimed; gives the claim."""

    def claim(queue: str = "reviews", payload: str = '{"pr": 1}', *options: str) -> Any:
        cli("enqueue", queue, payload, *options)
        (claim,) = cli("claim", queue, "--json").json["claims"]
        return claim

    return claim


@pytest.fixture
def private(scratch: Path) -> Iterator[Cli]:
    """The command line without any database of its own: it starts its private PostgreSQL."""
    place = scratch / "home"
    place.mkdir()
    cli = Cli(place, None)
    data = scratch / "data"
    cli.environment |= {"SLUICEGATE_DATA_DIR": str(data), "SLUICEGATE_EMBEDDED_LINGER": "5"}
    yield cli
    cli.close()
    stop(data, force=True)

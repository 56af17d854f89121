"""``./dev`` in a fresh clone, by an ordinary user with an empty home directory."""

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.requirements import requires
from tests.support.servers import ROOT
from tests.support.users import as_user, give, ordinary_user, repository_files
from tests.support.waiting import eventually

pytestmark = [requires("package-index"), pytest.mark.slow]


class Clone:
    """A copy of the repository that belongs to an account, and ``./dev`` in it."""

    def __init__(self, scratch: Path, account: pwd.struct_passwd) -> None:
        self.place = scratch / "clone"
        self.account = account
        self.home = scratch / "home"
        self.home.mkdir()
        for path in repository_files(ROOT):
            target = self.place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, target)
        give(self.place, account)
        give(self.home, account)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        unwanted = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
        environment = {name: value for name, value in os.environ.items() if name not in unwanted}
        environment |= {"HOME": str(self.home), "PATH": f"{os.defpath}:/usr/local/bin"}
        return subprocess.Popen(
            [self.place / "dev", *arguments],
            cwd="/",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **as_user(self.account),
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=300)
        return process.returncode, output, errors


def test_the_environment_is_made_once_whoever_interrupts_or_runs_beside(scratch: Path) -> None:
    clone = Clone(scratch, ordinary_user())
    installing = clone.place / ".venv" / "sluicegate-install.log"

    killed = clone.start("help")
    eventually(lambda: installing.exists() and installing.stat().st_size > 0, "pip has begun", timeout=120)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()

    together = [clone.start("help"), clone.start("help")]
    answers = [process.communicate(timeout=300) for process in together]
    assert [process.returncode for process in together] == [0, 0], answers
    assert all("Usage: ./dev VERB" in output for output, _ in answers)
    progress = sorted(errors.count("is ready after") for _, errors in answers)
    assert progress == [0, 1], "one of the two made it, and the other waited"
    assert "waiting for it" in answers[0][1] + answers[1][1]
    assert os.access(clone.place / ".venv" / "bin" / "sluicegate", os.X_OK)
    assert (clone.place / ".venv").stat().st_uid == clone.account.pw_uid

    assert clone.run("help")[2] == "", "nothing to do the next time"
    with (clone.place / "pyproject.toml").open("a") as project:
        project.write("# changed\n")
    assert "pyproject.toml has changed" in clone.run("help")[2]
    assert clone.run("help")[2] == ""


@requires("second-user")
def test_in_somebody_elses_clone_it_says_what_to_do(scratch: Path) -> None:
    clone = Clone(scratch, ordinary_user())
    give(clone.place, pwd.getpwuid(0))
    status, _, errors = clone.run("help")
    assert status == 1
    assert f"Cannot write in {clone.place}" in errors
    assert "a copy of the repository that belongs to you" in errors

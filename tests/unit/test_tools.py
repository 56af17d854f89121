"""What ``./dev test`` and ``./dev check`` make of their arguments and findings."""

import pytest

from tools import check
from tools.test import WORKERS, command_line


@pytest.mark.parametrize(
    ("given", "passed_on", "everything"),
    [
        ([], ["-n", WORKERS, "--dist", "loadgroup"], False),
        (["--all"], ["-n", WORKERS, "--dist", "loadgroup"], True),
        (["tests/unit", "-k", "layout"], ["-n", WORKERS, "--dist", "loadgroup", "tests/unit", "-k", "layout"], False),
        (["-n0", "-x"], ["-n0", "-x"], False),
        (["-n", "4", "--all"], ["-n", "4"], True),
        (["--pdb"], ["--pdb"], False),
    ],
)
def test_as_many_processes_as_there_is_work_for_unless_told_otherwise(
    given: list[str], passed_on: list[str], everything: bool
) -> None:
    assert command_line(given) == (passed_on, everything)


def test_an_unknown_option_of_check_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--fxi"]) == 2
    assert "knows --fix and --all, not --fxi" in capsys.readouterr().err


def cannot() -> str:
    raise check.CannotRun("to run it: apt-get install a-package")


@pytest.mark.parametrize(
    ("arguments", "run", "status", "words"),
    [
        ([], lambda: "", 0, "one                ok"),
        ([], lambda: "line 3 is wrong", 1, "one                failed"),
        ([], lambda: "line 3 is wrong", 1, "    line 3 is wrong"),
        ([], cannot, 0, "one                not run"),
        ([], cannot, 0, "    to run it: apt-get install a-package"),
        (["--all"], cannot, 1, "failed: one"),
        (["--all"], lambda: "", 0, "ok"),
    ],
)
def test_each_check_says_how_it_went(
    arguments: list[str],
    run: check.Run,
    status: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(check, "checks", lambda: [check.Check("one", run)])
    assert check.main(arguments) == status
    assert words in capsys.readouterr().out


def test_a_command_is_quiet_when_it_succeeds_and_heard_when_it_fails() -> None:
    assert check.command("sh", "-c", "echo fine") == ""
    assert check.command("sh", "-c", "echo wrong; exit 3") == "wrong"
    assert check.command("sh", "-c", "exit 3") == "exit status 3"

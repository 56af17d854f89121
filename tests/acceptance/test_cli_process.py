"""The process itself: exit status, streams, signals, and what it loads."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import tomllib
from pathlib import Path

import pytest

from tests.acceptance.conftest import PROGRAM, Cli
from tests.support.servers import ROOT
from tests.support.waiting import eventually

HEAVY = (
    "psycopg",
    "psycopg_pool",
    "pydantic",
    "asyncio",
    "rich.progress",
    "rich.live",
    "rich.markdown",
    "sqlite3",
    "ssl",
)


@pytest.mark.parametrize("arguments", [["--help"], ["enqueue", "--help"], ["--version"], ["nonsense"]])
def test_help_and_usage_load_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        "import sys, json\n"
        "from sluicegate.cli.main import main\n"
        f"sys.argv = ['sluicegate', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "open('loaded.json', 'w').write(json.dumps(sorted(sys.modules)))\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True)
    loaded = set(json.loads((tmp_path / "loaded.json").read_text()))
    assert "sluicegate.cli.app" in loaded
    assert loaded & set(HEAVY) == set()


def test_help_lists_every_command_with_a_sentence(cli_without_database: Cli) -> None:
    for arguments in ((), ("--help",), ("-h",)):
        shown = cli_without_database(*arguments).out
        assert re.search(r"enqueue +Add a job to a queue, or many\.", shown)
        assert "Exit status" in shown


def test_the_version_is_that_of_the_package(cli_without_database: Cli) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cli_without_database("--version").out == f"{project['version']}\n"


@pytest.mark.parametrize(
    ("arguments", "field", "hint"),
    [
        (("enqeue", "q"), "command", "Did you mean `sluicegate enqueue`?"),
        (("enqueue",), "queue", "--help"),
        (("jobs", "--colour", "red"), "colour", "`sluicegate jobs --help`"),
        (("enqueue", "q", "--colour", "red"), "payload", "--help"),
        (("enqueue", "q", "--from"), "from", "--help"),
        (("enqueue", "q", "--from", "--kind", "k"), "from", "standard input"),
        (("enqueue", "q", "--priority"), "priority", "--help"),
        (("enqueue", "q", "--priority", "1", "--priority", "2"), "priority", "--help"),
        (("enqueue", "q", "1", "2"), None, "quotes"),
        (("complete", "1", "2"), None, "never an argument"),
        (("exec", "q", "sleep", "-1x"), "1x", "after --"),
    ],
)
def test_wrong_usage_is_status_2_with_a_way_on(
    cli_without_database: Cli, arguments: tuple[str, ...], field: str | None, hint: str
) -> None:
    error = cli_without_database(*arguments, "--json", status=2).error
    assert (error["code"], error.get("field")) == ("invalid_argument", field)
    assert hint in error["next_step"]
    told = cli_without_database(*arguments, status=2)
    assert told.out == ""
    assert told.err.startswith("sluicegate: ")
    assert hint in told.err


def test_options_of_every_command_may_stand_before_it(cli: Cli) -> None:
    dsn = cli.environment.pop("SLUICEGATE_DSN")
    made = cli("--json", f"--dsn={dsn}", "--scope", "endpoint:default", "enqueue", "reviews", "1").json
    assert made["queue"] == "reviews"
    assert cli("--dsn", dsn, "jobs", "--json").json["jobs"][0]["id"] == made["id"]
    assert cli("--json", "--scope", "team:nobody", "--dsn", dsn, "jobs", status=1).error["code"] == "not_found"


def test_flags_come_before_the_environment_and_that_before_the_file(cli: Cli) -> None:
    (cli.place / "sluicegate.toml").write_text('scope = "team:file"\n')

    def refused(*options: str, **environment: str) -> str:
        return str(cli("jobs", *options, "--json", env=environment, status=1).error["message"])

    assert "team:file" in refused()
    assert "team:env" in refused(SLUICEGATE_SCOPE="team:env")
    assert "team:flag" in refused("--scope", "team:flag", SLUICEGATE_SCOPE="team:env")
    assert cli("jobs", "--scope", "endpoint:default", "--json").json["jobs"] == []


def test_a_database_out_of_reach_is_status_1_and_never_shows_the_password(cli_without_database: Cli) -> None:
    dsn = f"postgresql://ada:hunter2@/nowhere?host={cli_without_database.place}"
    error = cli_without_database.refused("jobs", "--dsn", dsn)
    assert error["code"] == "unavailable"
    told = cli_without_database("jobs", "--dsn", dsn, status=1)
    assert "Cannot connect to PostgreSQL" in told.err
    assert "hunter2" not in told.err + json.dumps(error)
    assert cli_without_database("jobs", "--dsn", "no = such = thing", "--json", status=2).error["field"] == "dsn"


def test_when_the_reader_goes_away_the_command_ends_quietly(cli: Cli) -> None:
    cli("enqueue", "reviews", "--from-lines", "-", stdin="a\n" * 100)
    watch = cli.start("jobs", "--watch", "--json", "--interval", "0.1", "--limit", "200")
    assert watch.stdout is not None
    assert watch.stderr is not None
    watch.stdout.readline()
    watch.stdout.close()
    cli("enqueue", "reviews", "1")
    assert watch.wait(timeout=60) == 141
    assert watch.stderr.read() == ""


def test_a_full_disk_is_told_with_status_1(cli: Cli) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        done = cli.start("jobs", stdout=full)
        assert done.wait(timeout=60) == 1
    assert done.stderr is not None
    assert done.stderr.read() == "sluicegate: The output cannot be written: No space left on device.\n"


def test_closed_streams_do_no_harm(cli: Cli) -> None:
    command = f'exec "{PROGRAM}" enqueue reviews 1 <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", command], env=cli.environment, cwd=cli.place, check=False).returncode == 0
    assert len(cli("jobs", "--json").json["jobs"]) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_is_quiet(cli: Cli, number: int) -> None:
    waiting = cli.start("enqueue", "reviews", "-", stdin=subprocess.PIPE)
    assert waiting.stdin is not None
    waiting.stdin.write("[1, 2")
    waiting.stdin.flush()
    pipe = waiting.stdin.fileno()
    eventually(lambda: not struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"1234"))[0], "it reads the payload")
    answer = cli.stop(waiting, number)
    assert answer.status == (130 if number == signal.SIGINT else -signal.SIGTERM)
    assert (answer.out, answer.err) == ("", "")


def test_a_terminal_gets_a_table_that_stays_up_to_date(cli: Cli) -> None:
    cli("enqueue", "reviews", "1", "--title", "first")
    cli.environment |= {"TERM": "xterm", "COLUMNS": "160", "LINES": "24"}
    ours, theirs = pty.openpty()
    watch = cli.start("jobs", "--watch", "--interval", "0.1", stdout=theirs)
    os.close(theirs)
    _read_until(ours, b"first")
    cli("enqueue", "reviews", "1", "--title", "second")
    _read_until(ours, b"second")
    watch.send_signal(signal.SIGINT)
    _read_until(ours, b"\x1b[?1049l")
    assert watch.wait(timeout=60) == 130
    os.close(ours)


def _read_until(terminal: int, wanted: bytes) -> None:
    shown = b""

    def look() -> bool:
        nonlocal shown
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 65536)
        return wanted in shown

    eventually(look, f"{wanted!r} on the terminal")


def test_an_encoding_that_cannot_show_a_character_gets_an_escape(cli: Cli) -> None:
    cli("enqueue", "reviews", '"grüße"', "--title", "żółw")
    latin = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    listed = subprocess.run(
        [PROGRAM, "jobs"], env=cli.environment | latin, cwd=cli.place, capture_output=True, check=True
    )
    assert "\\u017c\xf3\\u0142w" in listed.stdout.decode("latin-1")
    found = subprocess.run(
        [PROGRAM, "job", "1", "--json"], env=cli.environment | latin, cwd=cli.place, capture_output=True, check=True
    )
    assert json.loads(found.stdout)["job"]["payload"] == "grüße"

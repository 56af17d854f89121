"""``./dev check [--fix] [--all]``: everything that can be judged without running the product, in seconds.

``--fix`` first repairs what a machine can repair. ``--all`` fails where a check cannot run on this machine.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tools import plpgsql, sql_files

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.prefix) / "bin"
UNASYNC = ROOT / "tools" / "unasync.py"
LINTED = ("src", "tests", "bench", "tools", "dev")
TYPED = ("src", "tests/support", "tests/conftest.py", "bench", "tools", "dev")
WORKERS = 3

Run = Callable[[], str]


class CannotRun(Exception):
    """This machine lacks something; the text says what would allow the check."""


@dataclass(frozen=True)
class Check:
    """``run`` returns the complaints, empty if there are none; it raises CannotRun where it cannot judge."""

    name: str
    run: Run


@dataclass(frozen=True)
class Outcome:
    name: str
    word: str
    seconds: float
    text: str = field(default="")


def existing(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if (ROOT / path).exists()]


def command(*arguments: str) -> str:
    """The output of a command if it failed, else nothing."""
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip() or f"exit status {done.returncode}"


def tool(name: str, *arguments: str) -> str:
    return command(str(BIN / name), *arguments)


def squawk() -> str:
    """Migrations run in one transaction each, but for those that say otherwise in their header."""
    alone: list[str] = []
    together: list[str] = []
    for path in sorted((ROOT / "src/sluicegate/sql/migrations").glob("*.sql")):
        (alone if "-- nontransactional" in path.read_text() else together).append(str(path.relative_to(ROOT)))
    complaints = [tool("squawk", "--assume-in-transaction", *together)] if together else []
    complaints += [tool("squawk", *alone)] if alone else []
    return "\n".join(filter(None, complaints))


def plpgsql_check() -> str:
    try:
        return plpgsql.complaints()
    except plpgsql.Unavailable as error:
        raise CannotRun(str(error)) from error


def unasync(*arguments: str) -> str:
    return command(sys.executable, str(UNASYNC), *arguments)


def checks() -> list[Check]:
    found = [
        Check("ruff check", lambda: tool("ruff", "check", *existing(LINTED))),
        Check("ruff format", lambda: tool("ruff", "format", "--check", *existing(LINTED))),
        Check("mypy", lambda: tool("mypy", *existing(TYPED))),
        Check("import direction", lambda: tool("lint-imports", "--no-logo")),
        Check("SQL files", sql_files.complaints),
        Check("squawk", squawk),
        Check("plpgsql_check", plpgsql_check),
    ]
    if UNASYNC.exists():
        found.append(Check("generated files", lambda: unasync("--check")))
    return found


def judge(check: Check) -> Outcome:
    started = time.monotonic()
    try:
        text = check.run()
        word = "failed" if text else "ok"
    except CannotRun as error:
        text, word = str(error), "not run"
    return Outcome(check.name, word, time.monotonic() - started, text)


def repair() -> None:
    tool("ruff", "check", "--fix", *existing(LINTED))
    tool("ruff", "format", *existing(LINTED))
    if UNASYNC.exists():
        unasync()


def show(outcome: Outcome) -> None:
    print(f"{outcome.name:<18} {outcome.word:<8} {outcome.seconds:5.1f} s", flush=True)
    if outcome.text:
        print("\n".join(f"    {line}" for line in outcome.text.splitlines()), flush=True)


def main(arguments: list[str]) -> int:
    if unknown := set(arguments) - {"--fix", "--all"}:
        print(f"./dev check knows --fix and --all, not {' '.join(sorted(unknown))}.", file=sys.stderr)
        return 2
    if "--fix" in arguments:
        repair()
    with ThreadPoolExecutor(WORKERS) as pool:
        outcomes = []
        for outcome in pool.map(judge, checks()):
            show(outcome)
            outcomes.append(outcome)
    bad = {"failed", "not run"} if "--all" in arguments else {"failed"}
    wrong = [outcome.name for outcome in outcomes if outcome.word in bad]
    if wrong:
        print(f"\nfailed: {', '.join(wrong)}")
        return 1
    print("\nok")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

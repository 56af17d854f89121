"""What the README and the how-to pages tell their readers to do, done: in two terminals at once."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sluicegate import Client
from sluicegate.async_budgets import AsyncBudgets
from sluicegate.embedded import attach
from tests.acceptance.conftest import Cli
from tests.acceptance.documents import Block, Terminal, blocks, check_output, run_python
from tests.support.servers import ROOT
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
EXAMPLE_DSN = "postgresql://sluicegate@db.example.org/jobs"
# The run that this test is part of; everything else is typed as it stands.
NOT_TYPED = "./dev test\n"


class Reader:
    """Somebody who follows a page, in a directory that looks like the repository."""

    def __init__(self, cli: Cli, own_dsn: str) -> None:
        self.cli = cli
        self.place = cli.place / "sluicegate"
        self.place.mkdir()
        for name in ("dev", ".venv", "docs"):
            (self.place / name).symlink_to(ROOT / name)
        path = os.pathsep.join([str(Path(sys.executable).parent), cli.environment.get("PATH", os.defpath)])
        self.environment = cli.environment | {"PATH": path}
        self._own_dsn = own_dsn
        self._terminals: dict[str, Terminal] = {}

    def read(self, page: Path) -> None:
        """Do everything that ``page`` says, in order."""
        shown = ""
        for block in blocks(page):
            match block.language:
                case "sh":
                    shown = self._type(block)
                case "text":
                    check_output(block, shown)
                case "python":
                    run_python(block.text, self.place, self.environment)
                case "sql":
                    self._run_sql(block.text)
                case _:
                    raise AssertionError(f"{page.name}, line {block.line}: nothing runs a block {block.language}")

    def _type(self, block: Block) -> str:
        name = block.terminal
        assert name in ("1", "2"), f"line {block.line}: a block sh names its terminal"
        if block.text == NOT_TYPED:
            return ""
        if name not in self._terminals:
            self._terminals[name] = Terminal(self.place, self.environment)
        terminal = self._terminals[name]
        terminal.type(block.text.replace(EXAMPLE_DSN, self._own_dsn))
        return "" if "stays" in block.words else terminal.wait()

    def _run_sql(self, text: str) -> None:
        self.cli("jobs")  # the first command brings the schema
        with (
            attach(Path(self.environment["SLUICEGATE_DATA_DIR"])) as attachment,
            psycopg.connect(attachment.dsn, autocommit=True) as connection,
        ):
            connection.execute(text.encode())

    def terminal(self, name: str) -> Terminal:
        return self._terminals[name]

    def close(self) -> None:
        for terminal in self._terminals.values():
            terminal.close()


@pytest.fixture
def reader(private: Cli, empty_dsn: str) -> Iterator[Reader]:
    reader = Reader(private, empty_dsn)
    yield reader
    reader.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_followed_to_its_end(reader: Reader, page: Path) -> None:
    reader.read(page)
    if page == README:
        _check_the_tour(reader)


def _check_the_tour(reader: Reader) -> None:
    def greetings() -> list[Any]:
        return list(reader.cli("jobs", "--queue", "greetings", "--json").json["jobs"])

    assert len(greetings()) == 4
    assert not reader.terminal("1").is_over, "the worker of terminal 1 runs beside terminal 2"
    eventually(lambda: all(job["state"] == "done" for job in greetings()), "terminal 1 does what terminal 2 adds", 60)
    reader.terminal("1").interrupt()
    assert "4 done" in reader.terminal("1").output
    (review,) = reader.cli("jobs", "--queue", "reviews", "--json").json["jobs"]
    assert reader.cli("job", str(review["id"]), "--json").json["job"]["result"] == {"comments": 3}


def test_a_page_without_its_commands_would_be_noticed() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    assert sum(block.text == NOT_TYPED for block in found) == 1
    assert {"sh", "python", "sql", "text"} <= {block.language for block in found}
    assert {block.terminal for block in found if block.language == "sh"} == {"1", "2"}
    assert shutil.which("bash")


def test_the_readme_names_every_method_of_a_client() -> None:
    (table,) = re.findall(r"^\| for \| methods \|\n(.*?)\n\n", README.read_text(), re.MULTILINE | re.DOTALL)
    methods = {name for name in vars(Client) | vars(AsyncBudgets) if name[0] != "_"}
    elsewhere = {"open", "close", "beside", "dsn", "scope", "worker", "open_admission"}
    assert set(re.findall(r"`(\w+)`", table)) == (methods - elsewhere) | {"enqueue_in", "run_at"}


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "docs" / "reference" / "cli.md"]:
        text = page.read_text()
        anchors = {
            re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-")
            for head in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        }
        for target in re.findall(r"\]\(([^)]+)\)", text):
            path, _, anchor = target.partition("#")
            if path:
                assert (page.parent / path).exists(), f"{page.name}: {target}"
            elif anchor:
                assert anchor in anchors, f"{page.name}: {target}"


def test_what_the_prose_calls_a_command_or_an_option_is_one() -> None:
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    commands = {tuple(head.split()) for head in re.findall(r"^#+ (?:sluicegate )?([a-z ]+)$", reference, re.MULTILINE)}
    assert ("queue", "budget", "set") in commands
    options = set(re.findall(r"--[a-z][a-z-]*", reference))
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for span in re.findall(r"`([^`\n]+)`", prose):
            words = span.split()
            if words[0] == "sluicegate" and len(words) > 1 and words[1].islower():
                assert any((*words[1:],)[: len(command)] == command for command in commands), f"{page.name}: {span}"
            if words[0] == "sluicegate" or words[0].startswith("--"):
                unknown = {word for word in words if re.fullmatch(r"--[a-z-]+", word)} - options
                assert not unknown, f"{page.name}: {span}"

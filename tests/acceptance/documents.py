"""The commands of a page of documentation, run as its reader would: in the terminals it names, at once.

A block ``sh terminal=1`` is typed into terminal 1, where what it sets stays set; with ``stays`` it runs on while the
page goes on, until the terminal is needed again or the page ends (Ctrl-C). A block ``text`` after it shows what it
prints, ``…`` standing for anything. Blocks ``python`` and ``sql`` are run as they are.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import eventually

LONGEST = 300
# Reads the names of scripts and runs each in this very shell, so that variables and directories last.
SHELL = """
trap : INT
while read -r block; do
    trap 'echo "$BASH_COMMAND ended with $?" >> "$block.failed"' ERR
    source "$block" < /dev/null > "$block.out" 2>&1
    trap - ERR
    touch "$block.over"
done <&3
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words after that, its text, and where it stands."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int

    @property
    def terminal(self) -> str | None:
        return next((word.partition("=")[2] for word in self.words if word.startswith("terminal=")), None)


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    for found in re.finditer(r"^```(\w+)([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(found[1], tuple(found[2].split()), found[3], line)


class Terminal:
    """A shell that blocks are typed into, one after the other."""

    def __init__(self, place: Path, environment: Mapping[str, str]) -> None:
        self._place = place
        self._count = 0
        self._current: Path | None = None
        read, self._write = os.pipe()
        self._shell = subprocess.Popen(
            ["bash", "-c", f"exec 3<&{read} {read}<&-\n{SHELL}"],
            cwd=place,
            env=environment,
            pass_fds=[read],
            start_new_session=True,
        )
        os.close(read)

    def type(self, text: str) -> None:
        """Start a block; what ran before is stopped with Ctrl-C."""
        self.interrupt()
        self._count += 1
        self._current = self._place / f".block-{id(self)}-{self._count}"
        self._current.write_text(text)
        os.write(self._write, f"{self._current}\n".encode())

    def interrupt(self) -> None:
        """Ctrl-C, if anything runs, and wait for its end."""
        if self._current is not None and not self.is_over:
            os.killpg(self._shell.pid, signal.SIGINT)
        self.wait()

    def wait(self) -> str:
        """What the last block has printed by its end; fails if one of its commands failed."""
        if self._current is None:
            return ""
        eventually(lambda: self.is_over, f"the end of: {self._current.read_text()}", timeout=LONGEST)
        failed = self._file("failed")
        assert not failed.exists(), f"{failed.read_text()}\n{self.output}"
        return self.output

    @property
    def is_over(self) -> bool:
        return self._file("over").exists()

    @property
    def output(self) -> str:
        return self._file("out").read_text()

    def _file(self, kind: str) -> Path:
        assert self._current is not None
        return Path(f"{self._current}.{kind}")

    def close(self) -> None:
        if self._current is not None and not self.is_over:
            os.killpg(self._shell.pid, signal.SIGINT)
        os.close(self._write)
        try:
            self._shell.wait(timeout=60)
        finally:
            if self._shell.poll() is None:
                os.killpg(self._shell.pid, signal.SIGKILL)


def check_output(block: Block, shown: str) -> None:
    """Every line of ``block`` is in what was shown, in its order."""
    at = 0
    for line in block.text.splitlines():
        pattern = ".*?".join(re.escape(part.strip()).replace(r"\ ", r"\s+") for part in re.split("…", line))
        found = re.compile(pattern, re.DOTALL).search(shown, at)
        assert found, f"line {block.line}: {line!r} is not in what was printed:\n{shown}"
        at = found.end()


def run_python(text: str, place: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"

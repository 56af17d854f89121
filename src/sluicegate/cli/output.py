"""What a command says: one JSON document (or a line of JSON for each event), or text for people."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO, TypeVar

from sluicegate.errors import SluicegateError

# What a terminal would obey instead of showing it: payloads and titles come from anybody.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


E = TypeVar("E", bound=SluicegateError)


class Told(Exception):
    """An error that stands in the answer already: only the exit status is left to be decided by ``error``."""

    def __init__(self, error: SluicegateError) -> None:
        super().__init__(str(error))
        self.error = error


class Unwritable(Exception):
    """The output cannot be written: its reader has gone, or a disk is full."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"The output cannot be written: {error.strerror or error}.")
        self.reader_gone = isinstance(error, BrokenPipeError)


def amended(error: E, **changes: str | None) -> E:
    """The same error with another ``message``, ``next_step`` or ``field``."""
    changed = copy(error)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


class Output:
    """Standard output for answers, standard error for everything else.

    ``json`` decides the form: answers and errors are then JSON on standard output, and notes are left out.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json

    def answer(self, document: Mapping[str, Any], *lines: str) -> None:
        """The answer of a command: the API's own object, or the same in words."""
        if self.json:
            write(encoded(document))
        else:
            for line in lines:
                write(visible(line))

    def event(self, document: Mapping[str, Any], line: str | None) -> None:
        """One of a series: a line of JSON, or of text if there is anything to say to people. Shown at once."""
        if self.json:
            write(encoded(document), at_once=True)
        elif line is not None:
            write(visible(line), at_once=True)

    def note(self, line: str) -> None:
        """Something for people only, on standard error."""
        if not self.json:
            write(visible(line), to=sys.stderr, at_once=True)

    def error(self, error: SluicegateError) -> None:
        """What went wrong and what to do next."""
        if self.json:
            write(encoded({"error": error.to_dict()}), at_once=True)
            return
        flush()
        lines = [f"sluicegate: {error.message}", *([error.next_step] if error.next_step else [])]
        write(visible("\n".join(lines)), to=sys.stderr, at_once=True)


def write(text: str, *, end: str = "\n", to: TextIO | None = None, at_once: bool = False) -> None:
    """Print ``text``, whatever the terminal's encoding can show of it. Raises Unwritable."""
    stream = sys.stdout if to is None else to
    try:
        try:
            stream.write(text + end)
        except UnicodeEncodeError:
            shown = text.encode(stream.encoding, errors="backslashreplace").decode(stream.encoding)
            stream.write(shown + end)
        if at_once:
            stream.flush()
    except OSError as error:
        raise Unwritable(error) from error


def flush() -> None:
    """Hand on what has been written to standard output so far. Raises Unwritable."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise Unwritable(error) from error


def encoded(document: Mapping[str, Any]) -> str:
    """One line of JSON."""
    return json.dumps(document, ensure_ascii=not _utf8(), allow_nan=False)


def visible(text: str) -> str:
    """``text`` with control characters as escapes; line ends and tabs stay."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def shown_json(value: Any, most: int = 2000) -> str:
    """A JSON value for people: on one line, cut after ``most`` characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters; --json shows all)"


def local(moment: datetime | None) -> str:
    """A moment in this machine's zone, to the second."""
    return "" if moment is None else moment.astimezone().isoformat(sep=" ", timespec="seconds")


def span(seconds: float) -> str:
    """A length of time for people: 0.4 s, 12 s, 5 min, 3 h, 2 d."""
    for size, unit in ((172_800, "d"), (7_200, "h"), (120, "min")):
        if abs(seconds) >= size:
            return f"{seconds / {'d': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.1f} s" if abs(seconds) < 10 else f"{seconds:.0f} s"


def count(many: int, noun: str) -> str:
    """``1 job``, ``2 jobs``, ``10,000 jobs``."""
    return f"{many:,} {noun}{'' if many == 1 else 's'}"


def program() -> str:
    """How to call this program from here: by its path in an environment below, else by its name."""
    path = Path(sys.argv[0])
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else "sluicegate"


def columns(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table as lines of text, every column as wide as it needs to be and nothing cut off."""
    table = [tuple(heads), *(tuple(visible(cell).replace("\n", " ") for cell in row) for row in rows)]
    widths = [max(len(row[at]) for row in table) for at in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def _utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"

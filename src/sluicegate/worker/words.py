"""The command line: words that may take values from the payload, and never see a shell."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sluicegate.errors import InvalidArgument

MAX_VALUE_BYTES = 65_536

_REFERENCE = re.compile(r"\{payload(\.[^{}]*)?\}")


class Unusable(Exception):
    """The payload does not give what the command line asks for; the message says what and why."""


class CommandLine:
    """A command and its arguments.

    ``{payload}`` in an argument stands for the whole payload and ``{payload.name.0}`` for a member of it, by the keys
    of objects and the positions in lists. Text is put in as it is, everything else as compact JSON. All other braces
    mean themselves, also those in values. Raises InvalidArgument for a command that can never be started.
    """

    def __init__(self, words: Sequence[str]) -> None:
        if not words or not words[0]:
            raise InvalidArgument(
                "There is no command to run.", field="command", next_step="Write it after --, e.g. exec mail -- ./send."
            )
        for index, word in enumerate(words):
            if "\0" in word:
                raise InvalidArgument(
                    f"command[{index}] holds a NUL character, which no argument can.",
                    field=f"command[{index}]",
                    next_step="Leave it out.",
                )
        if _REFERENCE.search(words[0]):
            raise InvalidArgument(
                f"The program itself cannot come from a payload: {words[0]}",
                field="command",
                next_step="Name the program; its arguments may hold {payload.…}.",
            )
        self._words = tuple(words)

    @property
    def program(self) -> str:
        return self._words[0]

    def check_program(self) -> None:
        """Raises InvalidArgument if the program is not there: every claim for it would be charged in vain."""
        if shutil.which(self.program) is not None:
            return
        there = Path(self.program).exists() and "/" in self.program
        raise InvalidArgument(
            f"{self.program} cannot be executed here." if there else f"There is no program {self.program} here.",
            field="command",
            next_step="It has to be a file that may be executed (chmod +x)."
            if there
            else "Check its name. Without a slash it is looked for in PATH, with one from the current folder.",
        )

    def arguments(self, payload: Any) -> list[bytes]:
        """The words for one job. Raises Unusable for an unknown path or a value over 64 KiB."""
        filled = (word if "{payload" not in word else self._fill(word, payload) for word in self._words)
        try:
            return [os.fsencode(word) for word in filled]
        except UnicodeEncodeError as error:
            raise Unusable(
                f"An argument cannot be written in this worker's character set ({error.encoding})."
            ) from None

    def _fill(self, word: str, payload: Any) -> str:
        return _REFERENCE.sub(lambda found: _value(payload, found.group(), found.group(1)), word)


def _value(payload: Any, reference: str, path: str | None) -> str:
    member = payload
    for step in [] if path is None else path[1:].split("."):
        member = _member(member, step, reference)
    text = member if isinstance(member, str) else json.dumps(member, ensure_ascii=False, separators=(",", ":"))
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_VALUE_BYTES:
        raise Unusable(
            f"The command line asks for {reference}, which is {size:,} bytes here; at most {MAX_VALUE_BYTES:,} fit an "
            "argument. Read it from standard input or from the file that SLUICEGATE_PAYLOAD_FILE names."
        )
    if "\0" in text:
        raise Unusable(f"The command line asks for {reference}, which holds a NUL character; no argument can.")
    return text


def _member(holder: Any, step: str, reference: str) -> Any:
    if isinstance(holder, dict):
        if step in holder:
            return holder[step]
        problem = f"there is no {step!r}"
    elif isinstance(holder, list):
        if re.fullmatch("[0-9]{1,9}", step) and int(step) < len(holder):
            return holder[int(step)]
        problem = f"{step!r} is no position in a list of {len(holder)}"
    else:
        problem = f"{step!r} is asked of {_kind(holder)}"
    raise Unusable(f"The command line asks for {reference}, but the payload does not have it: {problem}.")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return "text" if isinstance(value, str) else "a number"

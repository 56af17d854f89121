"""Just enough of PostgreSQL's lexical rules to cut a file into statements and find names in it.

Comments, quoted text and dollar-quoted bodies come out as one token each, so that whoever looks for a word or a
semicolon never finds one inside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["Token", "statements", "tokens"]

Kind = Literal["space", "comment", "string", "body", "name", "word", "symbol"]

_RULES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("space", re.compile(r"\s+")),
    ("comment", re.compile(r"--[^\n]*")),
    ("string", re.compile(r"[eE]'(?:[^'\\]|\\.|'')*'|(?:[bBxXnN]|[uU]&)?'(?:[^']|'')*'", re.DOTALL)),
    ("name", re.compile(r'"(?:[^"]|"")*"')),
    ("body", re.compile(r"\$([A-Za-z_]\w*)?\$.*?\$(?(1)\1)\$", re.DOTALL)),
    ("word", re.compile(r"[A-Za-z_][\w$]*")),
    ("symbol", re.compile(r"\d[\w.]*|.", re.DOTALL)),
)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of SQL text: what kind it is, and the text itself; joined, all tokens give the file back."""

    kind: Kind
    text: str

    @property
    def silent(self) -> bool:
        """Whether the server would not notice its absence."""
        return self.kind in {"space", "comment"}


def _block_comment_end(text: str, start: int) -> int:
    depth = 0
    for found in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if found.group() == "/*" else -1
        if depth == 0:
            return found.end()
    return len(text)


def tokens(text: str) -> Iterator[Token]:
    """Cut ``text`` into tokens. Never fails: what it does not know is a symbol of one character."""
    position = 0
    while position < len(text):
        if text.startswith("/*", position):
            end = _block_comment_end(text, position)
            yield Token("comment", text[position:end])
            position = end
            continue
        for kind, rule in _RULES:
            found = rule.match(text, position)
            if found is not None:
                yield Token(kind, found.group())
                position = found.end()
                break


def statements(text: str) -> list[str]:
    """The statements of ``text`` without their semicolons and the comments before them.

    Bodies written as ``begin atomic … end`` are not understood; function files never pass through here.
    """
    found: list[str] = []
    current: list[Token] = []
    for token in [*tokens(text), Token("symbol", ";")]:
        if token.text == ";" and token.kind == "symbol":
            if current:
                found.append("".join(piece.text for piece in current).strip())
            current = []
        elif current or not token.silent:
            current.append(token)
    return found

"""The SQL that ships with the library, read from its folder: numbered migrations and function files.

A migration is ``migrations/NNNN_name.sql``; its first comment lines may say

    -- phase: pre | post      pre (the default) adds, while yesterday's code still runs; post removes
    -- minimum: N             libraries that know no migration N are refused once this one is applied
    -- nontransactional       statement by statement, outside a transaction; each must be repeatable

A function is ``functions/**/NAME.sql`` and holds ``create or replace function sluicegate.NAME``; a comment line
``-- grants: worker, producer, reader, admin`` or ``-- grants: none`` says which roles may execute it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Literal

from sluicegate.errors import SluicegateError
from sluicegate.sql.lexer import Token, statements, tokens
from sluicegate.sql.manifest import Manifest, Shipped, digest, library_version, read_text

__all__ = [
    "GRANTEES",
    "FunctionFile",
    "MigrationFile",
    "Phase",
    "Source",
    "load_source",
    "shipped_function",
]

Phase = Literal["pre", "post"]

GRANTEES = ("worker", "producer", "reader", "admin")

_MIGRATION_NAME = re.compile(r"(?P<version>\d{4})_(?P<name>[a-z0-9_]+)\.sql")
_HEADER = re.compile(r"--\s*(?P<key>[a-z]+)\s*(?::\s*(?P<value>[^\n]*?)\s*)?")
_INDEX = re.compile(
    r"create\s+(unique\s+)?index\s+concurrently\s+(?P<guard>if\s+not\s+exists\s+)?(?P<name>[a-z_][a-z0-9_]*)\s",
    re.IGNORECASE,
)
_RELATION = re.compile(
    r"^create (?:unlogged )?(?:table|view|materialized view|sequence) (?:if not exists )?sluicegate\.(\w+)",
    re.MULTILINE | re.IGNORECASE,
)
_CONCURRENT = re.compile(r"(create (unique )?index|drop index|reindex .*?|refresh materialized view) concurrently\b")
_TRANSACTION = re.compile(r"(begin|start transaction|commit|end|rollback|abort|savepoint|prepare transaction)\b")
# The words that may follow the arguments and the return type of a function.
_ATTRIBUTES = frozenset(
    [
        "language",
        "transform",
        "window",
        "immutable",
        "stable",
        "volatile",
        "leakproof",
        "not",
        "called",
        "strict",
        "security",
        "external",
        "parallel",
        "cost",
        "rows",
        "support",
        "set",
        "as",
        "return",
        "begin",
    ]
)


class BadSource(SluicegateError):
    """A shipped SQL file does not keep the rules above: a fault of the package, not of the database."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(
            f"The SQL file {path} cannot be used: {fault}.", next_step="Correct the file, or reinstall sluicegate."
        )


def _headers(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        match = _HEADER.fullmatch(line.rstrip())
        if match is not None:
            found.setdefault(match["key"], match["value"] or "")
    return found


@dataclass(frozen=True)
class MigrationFile:
    """One numbered file. ``minimum`` is the lowest migration a library must know to use the schema after it."""

    version: int
    name: str
    text: str
    phase: Phase = "pre"
    minimum: int = 0
    transactional: bool = True

    @property
    def label(self) -> str:
        return f"{self.version:04d}_{self.name}"

    @cached_property
    def sha256(self) -> str:
        return digest(self.text)

    @cached_property
    def statements(self) -> list[str]:
        return statements(self.text)

    @staticmethod
    def index_of(statement: str) -> str | None:
        """The index that ``statement`` creates concurrently, or None."""
        found = _INDEX.match(_plain(tokens(statement)))
        return None if found is None else found["name"]


@dataclass(frozen=True)
class FunctionFile:
    """One function: ``signature`` is its arguments and result as written, ``grants`` the roles that may call it."""

    name: str
    text: str
    grants: tuple[str, ...]
    signature: str
    uses: frozenset[str]

    @cached_property
    def sha256(self) -> str:
        return digest(self.text)


@dataclass(frozen=True)
class Source:
    """Everything that ships: migrations by number, functions in an order in which they can be created."""

    migrations: tuple[MigrationFile, ...]
    functions: tuple[FunctionFile, ...]
    library: str

    @property
    def latest(self) -> int:
        return self.migrations[-1].version if self.migrations else 0

    @cached_property
    def relations(self) -> tuple[str, ...]:
        """The tables, views and sequences that the migrations make, by name."""
        made = (name for file in self.migrations for name in _RELATION.findall(file.text))
        return tuple(sorted({"migration", "function_version", *made}))

    @cached_property
    def manifest(self) -> Manifest:
        return Manifest(
            tuple(Shipped(file.name, file.sha256, file.version) for file in self.migrations),
            tuple(Shipped(file.name, file.sha256) for file in self.functions),
            self.library,
        )


def _plain(stream: Iterable[Token]) -> str:
    text = "".join(" " if piece.silent else piece.text for piece in stream)
    return re.sub(r"\s+", " ", text).strip()


def _migration(path: Path) -> MigrationFile:
    named = _MIGRATION_NAME.fullmatch(path.name)
    if named is None:
        raise BadSource(path, "its name is not NNNN_lower_case.sql")
    text = read_text(path)
    headers = _headers(text)
    phase = headers.get("phase", "pre")
    minimum = headers.get("minimum", "0")
    if not minimum.isdecimal():
        raise BadSource(path, f"its minimum {minimum!r} is not a number")
    match phase:
        case "pre" | "post":
            found = MigrationFile(
                int(named["version"]), named["name"], text, phase, int(minimum), "nontransactional" not in headers
            )
        case _:
            raise BadSource(path, f"its phase is {phase!r}, not pre or post")
    for statement in found.statements:
        fault = _fault(found, _plain(tokens(statement)).lower())
        if fault is not None:
            raise BadSource(path, fault)
    return found


def _fault(file: MigrationFile, statement: str) -> str | None:
    if _TRANSACTION.match(statement):
        return f"'{statement[:40]}' would end the transaction that applies it"
    if not file.transactional:
        index = _INDEX.match(statement)
        if index is not None and index["guard"] is None:
            return f"index {index['name']} lacks 'if not exists', so a killed run could not be resumed"
    elif _CONCURRENT.match(statement):
        return "'concurrently' cannot run in a transaction; mark the file '-- nontransactional'"
    return None


def _function(path: Path) -> FunctionFile:
    text = read_text(path)
    headers = _headers(text)
    if "grants" not in headers:
        raise BadSource(path, "no line '-- grants: …' in its header says who may execute it")
    named = [word.strip() for word in headers["grants"].split(",")]
    grants = () if named == ["none"] else tuple(role for role in GRANTEES if role in named or role == "admin")
    if named != ["none"] and not set(named) <= set(GRANTEES):
        raise BadSource(path, f"its grants are {headers['grants']!r}, not some of {', '.join(GRANTEES)}, or none")

    code = [token for token in tokens(text) if not token.silent]
    words = [token.text.lower() for token in code]
    opening = ["create", "or", "replace", "function", "sluicegate", ".", path.stem, "("]
    if words[: len(opening)] != opening:
        raise BadSource(path, f"it does not begin with 'create or replace function sluicegate.{path.stem}('")
    statement_ends = [position for position, word in enumerate(words) if word == ";"]
    if "begin" not in words and statement_ends != [len(words) - 1]:
        raise BadSource(path, "it must hold one statement, ended by a semicolon")
    return FunctionFile(path.stem, text, grants, _signature(path, code[len(opening) - 1 :]), _uses(code) - {path.stem})


def _signature(path: Path, code: list[Token]) -> str:
    depth = 0
    for position, token in enumerate(code):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0 and token.kind == "word" and token.text.lower() in _ATTRIBUTES:
            return " ".join(piece.text for piece in code[:position])
    raise BadSource(path, "the end of its arguments and return type was not found")


def _uses(code: list[Token]) -> frozenset[str]:
    text = [token.text for token in code]
    return frozenset(
        text[at + 2]
        for at in range(len(text) - 3)
        if text[at] == "sluicegate" and text[at + 1] == "." and text[at + 3] == "("
    )


def _in_order(functions: dict[str, FunctionFile]) -> tuple[FunctionFile, ...]:
    # Bodies are not checked while loading, so only defaults and "begin atomic" bodies need what they call.
    graph = {name: functions[name].uses & functions.keys() for name in sorted(functions)}
    try:
        return tuple(functions[name] for name in TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise SluicegateError(f"These functions need each other to be created: {', '.join(error.args[1])}.") from error


def shipped_function(name: str) -> FunctionFile:
    """The library's own file of one function. Raises KeyError when it ships none of that name."""
    for path in (Path(__file__).parent / "functions").rglob(f"{name}.sql"):
        return _function(path)
    raise KeyError(name)


def load_source(directory: Path | None = None) -> Source:
    """Read the SQL below ``directory`` (default: the library's own). Raises SluicegateError when a file breaks the rules."""
    root = directory if directory is not None else Path(__file__).parent
    migrations = [_migration(path) for path in sorted((root / "migrations").glob("*.sql"))]
    for expected, found in enumerate(migrations, start=1):
        if found.version != expected:
            raise BadSource(
                root / "migrations" / f"{found.label}.sql", f"number {expected:04d} was expected here, each number once"
            )
    functions: dict[str, FunctionFile] = {}
    for path in sorted((root / "functions").rglob("*.sql")):
        if path.stem in functions:
            raise BadSource(path, "another file has the same name")
        functions[path.stem] = _function(path)
    return Source(tuple(migrations), _in_order(functions), library_version())

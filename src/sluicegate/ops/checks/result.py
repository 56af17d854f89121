"""What a check is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psycopg

__all__ = [
    "Check",
    "CheckFunction",
    "Circumstances",
    "Cursor",
    "Look",
    "Origin",
    "Status",
    "may_call",
    "not_looked_at",
]

Status = Literal["ok", "warn", "fail"]
Origin = Literal["flag", "environment", "file", "embedded"]
Cursor = psycopg.Cursor[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. ``found`` is what is there, ``why`` what depends on it, ``next_step`` what to do (None: nothing).

    ``statements`` is SQL for a DBA that mends it, ``facts`` the same finding for programs. All texts are sentences.
    """

    name: str
    status: Status
    found: str
    why: str
    next_step: str | None = None
    statements: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "status": self.status,
            "found": self.found,
            "why": self.why,
            "next_step": self.next_step,
            "statements": list(self.statements),
            "facts": dict(self.facts),
        }


def may_call(look: Look, function: str) -> bool:
    """Whether our role may execute ``sluicegate.function``, which takes no arguments; a missing one raises."""
    row = look.cursor.execute(
        "select has_function_privilege(%s, 'execute')", (f"sluicegate.{function}()",), prepare=False
    ).fetchone()
    return row is not None and row[0] is True


def not_looked_at(name: str, why: str) -> Check:
    """The finding of a check that would show queues of every scope to a role that may not see them."""
    return Check(
        name,
        "warn",
        "This was not looked at: our role may not see the queues of other scopes.",
        why,
        "Run doctor as the owner of the schema, or as a member of sluicegate_reader.",
    )


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What doctor cannot ask the database.

    ``dsn`` is where it connects and ``origin`` where that came from; ``files`` are the files that hold the DSN or a
    password of it. ``binary_version`` is the version of the embedded PostgreSQL's binaries, None without one.
    ``jobs_uid`` is the user id that runs the jobs; None: the same as ours, as ``sluicegate exec`` does.
    """

    dsn: str
    origin: Origin = "environment"
    files: tuple[Path, ...] = ()
    binary_version: str | None = None
    jobs_uid: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What a check looks at: the database, through a cursor in a read-only transaction, and the circumstances."""

    cursor: Cursor
    circumstances: Circumstances


CheckFunction = Callable[[Look], Check]

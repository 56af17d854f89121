"""What a check is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psycopg

__all__ = ["Check", "CheckFunction", "Circumstances", "Cursor", "Look", "Origin", "Status"]

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

"""``doctor``: what is wrong with an installation, why it matters, and what to do about it.

``diagnose`` gives data only; the command line renders it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from sluicegate.errors import SluicegateError
from sluicegate.ops.checks import CHECKS
from sluicegate.ops.checks.result import Check, CheckFunction, Circumstances, Look, Origin, Status
from sluicegate.ops.checks.secrecy import who_can_read
from sluicegate.store import faults
from sluicegate.store.dsn import connect_arguments

__all__ = ["Check", "Circumstances", "Diagnosis", "Origin", "Status", "diagnose"]

_WHY_CONNECTION = "Everything Sluicegate knows is in this database."
_WHY_UNKNOWN = "What cannot be looked at may be wrong."
_SETTINGS = (
    "set transaction read only; set local statement_timeout = '10s'; set local lock_timeout = '2s'; set local jit = off"
)
_ORDER: tuple[Status, ...] = ("ok", "warn", "fail")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, in the order of the report. ``status`` is the worst among them."""

    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        return max((check.status for check in self.checks), key=_ORDER.index, default="ok")

    def to_dict(self) -> dict[str, object]:
        return {"status": self.status, "checks": [check.to_dict() for check in self.checks]}


def diagnose(circumstances: Circumstances) -> Diagnosis:
    """Look at the database and at who can read its DSN. Changes nothing; a fault is a finding, never an exception.

    Connects once, and gives each check at most 10 seconds.
    """
    try:
        conn: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(**connect_arguments(circumstances.dsn))
    except SluicegateError as error:
        return Diagnosis((_unreachable(error), who_can_read(circumstances, None)))
    except psycopg.Error as error:
        return Diagnosis((_unreachable(faults.from_connect(error)), who_can_read(circumstances, None)))
    with conn:
        reached = Check("connection", "ok", f"Connected to {_where(conn)}.", _WHY_CONNECTION)
        found = tuple(_ask(conn, name, check, circumstances) for name, check in CHECKS)
    return Diagnosis((reached, *found))


def _ask(
    conn: psycopg.Connection[tuple[Any, ...]], name: str, check: CheckFunction, circumstances: Circumstances
) -> Check:
    try:
        # Its own transaction, rolled back: no check leaves a setting behind or spoils the next one.
        with conn.transaction(force_rollback=True), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
            cursor.execute(_SETTINGS, prepare=False)
            return check(Look(cursor, circumstances))
    except SluicegateError as error:
        return Check(name, "fail", error.message, _WHY_UNKNOWN, error.next_step)
    except psycopg.Error as error:
        said = error.diag.message_primary or faults.first_line(error)
        return Check(name, "fail", f"This could not be looked at: {said}.", _WHY_UNKNOWN, _step(error))


def _step(error: psycopg.Error) -> str:
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return "Connect as the owner of the schema, or as a member of sluicegate_reader or sluicegate_worker."
    if error.sqlstate in {"3F000", "42883", "42P01"}:
        return "Run: sluicegate migrate"
    return "Run sluicegate doctor again; if it stays, look at the server's log."


def _unreachable(error: SluicegateError) -> Check:
    return Check("connection", "fail", error.message, _WHY_CONNECTION, faults.without_doctor(error.next_step))


def _where(conn: psycopg.Connection[Any]) -> str:
    info = conn.info
    return f"database {info.dbname} at {info.host or 'localhost'}, port {info.port}, as {info.user}"

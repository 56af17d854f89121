"""Taking turns: the migration lock, tried again and again, each time in a transaction of its own."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from sluicegate.errors import Unavailable
from sluicegate.sql.sessions import lock_holder, table_holders
from sluicegate.sql.texts import AS_OWNER, LOCK_KEY, SETTINGS

__all__ = ["Cursor", "Turns"]

T = TypeVar("T")
Cursor = psycopg.Cursor[tuple[Any, ...]]

_FIRST_PAUSE, _LONGEST_PAUSE, _REPORT_EVERY = 0.05, 1.0, 5.0


class Patience:
    """Waits that grow up to a second, told to ``say`` as they begin and every five seconds, and end by ``timeout``."""

    def __init__(self, say: Callable[[str], None], timeout: float) -> None:
        self._say = say
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._pause = _FIRST_PAUSE
        self._told: tuple[str, float] = ("", 0.0)

    def wait(self, what: str, reason: str, next_step: str) -> None:
        """Sleep a little because of ``reason``. Raises Unavailable when the time is up."""
        now = time.monotonic()
        if now >= self._deadline:
            raise Unavailable(f"{what} gave up after {self._timeout:g} s: {reason}.", next_step=next_step)
        if reason.partition("(")[0] != self._told[0] or now - self._told[1] >= _REPORT_EVERY:
            self._say(f"{what} waits: {reason}.")
            self._told = (reason.partition("(")[0], now)
        time.sleep(min(self._pause * random.uniform(0.5, 1.0), max(self._deadline - now, 0.0)))
        self._pause = min(self._pause * 1.5, _LONGEST_PAUSE)


class Turns:
    """Runs pieces of work one at a time among all migrators of a database.

    ``timeout`` is how many seconds one piece of work may be kept waiting before Unavailable says by whom.
    """

    def __init__(self, conn: psycopg.Connection[Any], say: Callable[[str], None], timeout: float) -> None:
        self.conn = conn
        self.say = say
        self.timeout = timeout

    def cursor(self) -> Cursor:
        return psycopg.Cursor(self.conn, row_factory=tuple_row)

    def take(self, what: str, work: Callable[[Cursor], T], *, as_owner: bool = True) -> T:
        """Commit what ``work`` does under the lock; it is repeated whole when it had to give way to somebody.

        Where the schema exists and the role may, the work is done as the schema's owner.
        """
        patience = Patience(self.say, self.timeout)
        while True:
            try:
                with self.conn.transaction(), self.cursor() as cursor:
                    cursor.execute(SETTINGS + (AS_OWNER if as_owner else ""), prepare=False)
                    row = cursor.execute(f"select pg_try_advisory_xact_lock({LOCK_KEY})", prepare=False).fetchone()
                    if row == (True,):
                        return work(cursor)
                    holder = lock_holder(cursor, LOCK_KEY)
                reason = f"another migrator is at work, {holder or 'just ending'}"
                next_step = "Let it finish and try again; if it hangs, end it with pg_terminate_backend(PID)."
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
                reason, next_step = self._blocked(error)
            except psycopg.errors.InternalError_ as error:
                if error.diag.message_primary != "tuple concurrently updated":
                    raise
                reason = "somebody else was changing the same function or grant"
                next_step = "Find out who replaces functions of the schema sluicegate, and try again."
            patience.wait(what, reason, next_step)

    def _blocked(self, error: psycopg.Error) -> tuple[str, str]:
        with self.cursor() as cursor:
            holders = table_holders(cursor)
        reason = f"a lock was not to be had within 2 s, {error.diag.message_primary}"
        if holders is not None:
            reason = f"a lock was not to be had within 2 s; its tables are in use by {holders}"
        return reason, "Try again when those transactions have ended, or end them with pg_terminate_backend(PID)."

"""Which database a client works on: the one it was told, or the private PostgreSQL, brought up and migrated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import psycopg

from sluicegate.settings import Settings
from sluicegate.sql.migrate import migrate, schema_state
from sluicegate.store import faults
from sluicegate.store.dsn import connect_arguments


@dataclass(frozen=True)
class Database:
    """A database that is ready for this library.

    ``renew`` starts a private PostgreSQL again that has gone; it may be called from any thread. ``close`` lets go of
    it, so that it may stop. Neither does anything to a database of somebody else's.
    """

    dsn: str
    scope: str
    renew: Callable[[], None]
    close: Callable[[], None]

    def lent(self) -> Database:
        """The same for somebody who is done before this one is closed."""
        return replace(self, close=_nothing)


def open_database(dsn: str | None, scope: str | None, data_dir: Path | None) -> Database:
    """Find the database and see that its schema fits; blocks while a private PostgreSQL starts.

    What is None comes from the settings. A database of somebody else's is only looked at, the private one is migrated.
    Raises Unavailable, SchemaMismatch, Forbidden, EmbeddedError, InvalidArgument.
    """
    given = {"dsn": dsn, "scope": scope, "data_dir": data_dir}
    settings = Settings.load(**{name: value for name, value in given.items() if value is not None})
    if settings.dsn is not None:
        with connect(settings.dsn) as connection:
            schema_state(connection).require()
        return Database(settings.dsn, settings.scope, renew=_nothing, close=_nothing)

    # Imported late: whoever has a DSN needs no binaries.
    from sluicegate.embedded import attach

    attachment = attach(settings.data_dir)
    try:
        with connect(attachment.dsn) as connection:
            state = schema_state(connection)
            if state.state != "ok" or state.clock_replaced:
                migrate(connection)
    except BaseException:
        attachment.close()
        raise

    alone = Lock()

    def renew() -> None:
        with alone:
            attachment.renew()

    return Database(attachment.dsn, settings.scope, renew=renew, close=attachment.close)


def connect(dsn: str) -> psycopg.Connection:
    """One connection, for what works on the database itself; a context manager that closes it. Raises Unavailable."""
    try:
        return psycopg.connect(**connect_arguments(dsn))
    except psycopg.Error as error:
        raise faults.from_connect(error) from error


def _nothing() -> None:
    """Nothing of ours."""

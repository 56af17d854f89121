"""An installation rather than the jobs in it: its private PostgreSQL, its schema, and how it is to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sluicegate.ops.checks.result import Circumstances
from sluicegate.ops.database import connect
from sluicegate.settings import Settings
from sluicegate.sql.migrate import MigrationReport, migrate, schema_state
from sluicegate.sql.script import migration_script
from sluicegate.sql.source import load_source

if TYPE_CHECKING:
    from sluicegate.embedded import Attachment

__all__ = ["PrivateDatabase", "circumstances", "hold_private_database", "migrate_database", "script_for_dba"]

# What a face calls a hold on the private PostgreSQL.
PrivateDatabase: TypeAlias = "Attachment"


def hold_private_database(data_dir: Path, *, port: int | None = None, label: str | None = None) -> PrivateDatabase:
    """Start the private PostgreSQL where it does not run, and hold it; see ``embedded.attach``. Raises EmbeddedError."""
    # Imported late, as below: whoever has a DSN needs no binaries.
    from sluicegate.embedded import attach

    return attach(data_dir, port=port, label=label)


def migrate_database(
    dsn: str, *, progress: Callable[[str], None] | None = None, pre_only: bool = False
) -> MigrationReport:
    """Bring the schema of a database to what this library needs. Raises what ``sql.migrate`` raises, Unavailable."""
    with connect(dsn) as connection:
        return migrate(connection, progress=progress, phase="pre" if pre_only else None)


def script_for_dba(start: int, end: int | None) -> str:
    """The SQL from version ``start`` to ``end`` (None: the latest), connecting to nothing. Raises InvalidArgument."""
    return migration_script(load_source(), start, end)


def circumstances(dsn: str, settings: Settings, attachment: PrivateDatabase | None) -> Circumstances:
    """What ``doctor`` is told of an installation. A private database, which ``attachment`` holds, is given its schema."""
    if attachment is None:
        origin = settings.origin("dsn")
        file = settings.file
        return Circumstances(
            dsn,
            origin="environment" if origin == "default" else origin,
            files=(file,) if origin == "file" and file is not None else (),
        )
    from sluicegate.embedded import status

    with connect(dsn) as connection:
        # Only then: migrate would also put back a replaced clock, which is a fault to be told.
        if schema_state(connection).state in ("missing", "behind"):
            migrate(connection)
    return Circumstances(
        dsn,
        origin="embedded",
        files=(attachment.password_file,),
        binary_version=status(settings.data_dir).binary_version,
    )

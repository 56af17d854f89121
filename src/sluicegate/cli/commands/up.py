"""``sluicegate up``."""

from __future__ import annotations

import shlex
import signal
import threading
from typing import TYPE_CHECKING, Annotated, Any

from sluicegate.cli.arguments import Common, whole
from sluicegate.cli.connection import announce, settings
from sluicegate.cli.output import Output, flush, program
from sluicegate.errors import InvalidArgument

if TYPE_CHECKING:
    from sluicegate.ops.installation import PrivateDatabase

_LOOK_SECONDS = 1.0


def run(
    *,
    port: Annotated[
        int | None,
        whole("port", "Listen on this TCP port of 127.0.0.1 as well: 1 to 65535; a socket alone unless given."),
    ] = None,
    common: Common = Common(),
) -> None:
    """Hold the private PostgreSQL up until Ctrl-C, its schema current.

    Other commands start it when they need it, and it ends a minute after
    the last of them. While `up` runs it does not end.

    sluicegate up
    """
    from sluicegate.ops.installation import hold_private_database, migrate_database

    found = settings(common)
    if found.dsn is not None:
        raise InvalidArgument(
            f"up holds the private PostgreSQL, but a DSN is set (from the {found.origin('dsn')}), so no command uses it.",
            field="dsn",
            next_step="Unset the DSN to work with the private PostgreSQL; with a DSN there is nothing to hold up.",
        )
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    output = Output(json=common.json)
    announce(common, found)
    with hold_private_database(found.data_dir, port=port, label="up") as attachment:
        version = migrate_database(attachment.dsn).version
        options = [] if common.data_dir is None else ["--data-dir", str(common.data_dir)]
        command = shlex.join([program(), *options])
        output.answer(_document(attachment, version), *_lines(attachment, version, command))
        flush()
        while not asked.wait(_LOOK_SECONDS):
            if attachment.renew():
                output.note("PostgreSQL's supervisor had gone; PostgreSQL has been started again.")


def _conninfo(attachment: PrivateDatabase) -> str:
    """What any client of PostgreSQL takes, without the password."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    parts = conninfo_to_dict(attachment.dsn).items()
    return make_conninfo(**{name: str(value) for name, value in parts if name != "password" and value is not None})


def _document(attachment: PrivateDatabase, version: int) -> dict[str, Any]:
    return {
        "data_dir": str(attachment.data_dir),
        "socket_dir": str(attachment.socket_dir),
        "port": attachment.port,
        "conninfo": _conninfo(attachment),
        "password_file": str(attachment.password_file),
        "log": str(attachment.log),
        "server_version": attachment.server_version,
        "server_pid": attachment.server_pid,
        "supervisor_pid": attachment.supervisor_pid,
        "schema_version": version,
        "notice": attachment.notice,
    }


def _lines(attachment: PrivateDatabase, version: int, command: str) -> list[str]:
    listening = f", and 127.0.0.1:{attachment.port}" if attachment.port is not None else ""
    return [
        f"PostgreSQL {attachment.server_version} is up, its schema at version {version}.",
        f"  data      {attachment.data_dir}",
        f"  socket    in {attachment.socket_dir}{listening}",
        f"  password  in {attachment.password_file}, for this user only",
        f'  psql      PGPASSWORD="$(cat {shlex.quote(str(attachment.password_file))})" psql {shlex.quote(_conninfo(attachment))}',
        f"  log       {attachment.log}",
        *([f"  note      {attachment.notice}"] if attachment.notice else []),
        "",
        "Commands of this user find it by themselves. In another terminal:",
        f'  {command} enqueue hello \'{{"name": "Ada"}}\'',
        f"  {command} exec hello -- echo 'Hello {{payload.name}}'",
        f"  {command} jobs --watch",
        "",
        "Ctrl-C lets go of it; it ends when nobody has used it for a while.",
    ]

"""The database a command works on."""

from __future__ import annotations

import getpass
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluicegate.cli.arguments import Common
from sluicegate.cli.output import Output

if TYPE_CHECKING:
    from sluicegate import SyncClient
    from sluicegate.ops.installation import PrivateDatabase
    from sluicegate.settings import Settings

_MAX_WORKER_BYTES = 128


@contextmanager
def connected(common: Common, *, worker: str | None = None) -> Iterator[SyncClient]:
    """A client on the database that the options, the environment or the configuration name.

    Starts and migrates the private PostgreSQL if none is named. Raises what ``SyncClient.open`` raises.
    """
    from sluicegate import SyncClient

    announce(common, settings(common))
    client = SyncClient(common.dsn, scope=common.scope, data_dir=common.data_dir, worker=worker, min_size=1, max_size=1)
    with client:
        yield client


@dataclass(frozen=True)
class Place:
    """Where the database is, for commands that look at it before its schema is there. ``attachment``: the private one."""

    dsn: str
    settings: Settings
    attachment: PrivateDatabase | None


def settings(common: Common) -> Settings:
    """The settings of this command. Raises InvalidArgument."""
    from sluicegate.settings import Settings

    return Settings.load(dsn=common.dsn, scope=common.scope, data_dir=common.data_dir)


def announce(common: Common, found: Settings) -> None:
    """Say that the private PostgreSQL is about to be made, which takes some seconds, once.

    From here on a connection that is lost is ours to tell: the pool's own warnings go to whoever has set up logging only.
    """
    logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
    if found.dsn is None and not os.path.lexists(found.data_dir):
        Output(json=common.json).note(f"Making a private PostgreSQL in {found.data_dir} (once; a few seconds).")


@contextmanager
def located(common: Common) -> Iterator[Place]:
    """The database, whatever is in it; the private PostgreSQL runs as long as the context lasts.

    Raises InvalidArgument, EmbeddedError.
    """
    found = settings(common)
    if found.dsn is not None:
        yield Place(found.dsn, found, None)
        return

    from sluicegate.ops.installation import hold_private_database

    announce(common, found)
    attachment = hold_private_database(found.data_dir)
    try:
        yield Place(attachment.dsn, found, attachment)
    finally:
        attachment.close()


def worker_name(given: str | None) -> str:
    """The name claims are made under: the one given, else this user on this machine."""
    if given is not None:
        return given
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # a container's user need not have a name
    return f"{user}@{socket.gethostname()}".encode()[:_MAX_WORKER_BYTES].decode(errors="ignore")

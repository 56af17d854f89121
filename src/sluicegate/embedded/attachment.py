"""What a command does with the private PostgreSQL: attach to it, starting it if need be, and let go of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from sluicegate.embedded.binaries import require_platform
from sluicegate.embedded.control import Connection
from sluicegate.embedded.layout import DataDir
from sluicegate.embedded.starting import Start
from sluicegate.errors import InvalidArgument

__all__ = ["Attachment", "attach"]

_PATIENCE_SECONDS = 120.0
_HIGHEST_PORT = 65_535


class Attachment:
    """A hold on the private PostgreSQL, which keeps running while any process holds one. Made by ``attach``.

    It ends with ``close``, with the process, or when nothing refers to it any more; a child made by fork without exec
    shares it. ``dsn`` holds the password. ``notice`` is a sentence people should see, or None. Not meant for several
    threads at once.
    """

    def __init__(self, start: Start, connection: Connection, answer: Mapping[str, object]) -> None:
        self._start = start
        self._take(connection, answer)

    def _take(self, connection: Connection, answer: Mapping[str, object]) -> None:
        self._connection = connection
        data = self._start.data
        host = quote(str(answer["socket_dir"]), safe="")
        where = f"{answer['database']}?host={host}&port={answer['socket_port']}"
        self.dsn = f"postgresql://{answer['user']}:{data.password()}@/{where}"
        self.data_dir = data.path
        self.password_file = data.password_file
        self.log = data.log
        self.socket_dir = Path(str(answer["socket_dir"]))
        self.server_version = str(answer["server_version"])
        self.server_pid = number(answer["server_pid"])
        self.supervisor_pid = number(answer["supervisor_pid"])
        self.port = number(answer["tcp_port"])
        self.notice = None if answer.get("notice") is None else str(answer["notice"])

    def __repr__(self) -> str:
        return f"<Attachment to {self.data_dir}, {'open' if self.is_open else 'closed'}>"

    @property
    def is_open(self) -> bool:
        """Whether this still holds PostgreSQL up: neither closed here, nor the supervisor gone."""
        return self._connection.is_open

    def renew(self) -> bool:
        """Attach again if the supervisor has gone; returns whether that was needed.

        A new one starts PostgreSQL at the same socket, so ``dsn`` stays valid unless that directory was taken by
        somebody else meanwhile. Raises EmbeddedError, as ``attach`` does.
        """
        if self.is_open:
            return False
        self._connection.close()
        self._take(*self._start.attach())
        return True

    def close(self) -> None:
        """Let go. Closing twice is fine."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def attach(
    data_dir: Path,
    *,
    bindir: Path | None = None,
    port: int | None = None,
    linger: float | None = None,
    label: str | None = None,
    timeout: float = _PATIENCE_SECONDS,
) -> Attachment:
    """Attach to the private PostgreSQL in ``data_dir``; make it and start it if need be. Blocks and prints nothing.

    ``bindir`` (the programs to use) and ``linger`` (how many seconds it outlives its last client, 0 to 86,400) count
    for a start only; None means the settings. ``port`` asks for a TCP port on 127.0.0.1 besides the unix socket, 1 to
    65,535. ``label`` is how others see this process, by default the name of its program. Raises EmbeddedError, after
    at most ``timeout`` seconds, and InvalidArgument for a value out of its range.
    """
    require_platform()
    if port is not None and not 1 <= port <= _HIGHEST_PORT:
        raise InvalidArgument(
            f"{port} is not a TCP port.", field="port", next_step=f"Choose one from 1 to {_HIGHEST_PORT}."
        )
    name = label or Path(sys.argv[0] or "python").name
    start = Start(open_data_dir(data_dir), bindir, port, linger, name, timeout)
    return Attachment(start, *start.attach())


def open_data_dir(path: Path) -> DataDir:
    """The data directory by its one real path, so that everybody means the same."""
    return DataDir(Path(os.path.realpath(Path(path).expanduser())))


def number(value: object) -> int | None:
    return value if isinstance(value, int) else None

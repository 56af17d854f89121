"""Where the sockets of the private PostgreSQL are.

They cannot live in the data directory, because the path of a unix socket is at most 107 bytes long: they have a short
directory of their own, whose name is random, kept in the data directory, and used again, so that the DSN outlives a
restart.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from sluicegate.embedded.account import ServerAccount
from sluicegate.embedded.layout import DataDir, write_atomically
from sluicegate.errors import EmbeddedError

__all__ = ["SocketDir"]

_SOCKET_PATH_LIMIT = 107


@dataclass(frozen=True)
class SocketDir:
    """The short directory for the sockets: ``control`` is ours, ``server`` belongs to PostgreSQL's account."""

    path: Path

    @property
    def control(self) -> Path:
        return self.path / "control"

    @property
    def server(self) -> Path:
        return self.path / "pg"

    @classmethod
    def open(cls, data: DataDir, account: ServerAccount, wanted: Path | None) -> SocketDir:
        """Make the directory, or take the one this data directory had before. Raises EmbeddedError.

        ``wanted`` is the directory in which it is to be; None: the first of the usual ones that will do.
        """
        problems = []
        for path in _names(data, wanted):
            place = cls(path)
            if problem := place._claim(data, account):
                problems.append(f"{path}: {problem}")
            else:
                write_atomically(data.socket_record, f"{path}\n")
                return place
        raise EmbeddedError(
            f"There is no place for PostgreSQL's sockets ({'; '.join(problems)}).",
            next_step="Set SLUICEGATE_SOCKET_DIR to a short, existing directory that this user can write.",
        )

    @property
    def owner(self) -> Path:
        return self.path / "data_dir"

    def _claim(self, data: DataDir, account: ServerAccount) -> str | None:
        """Take the directory for ourselves; the reason if that is impossible."""
        longest = len(os.fsencode(self.server / ".s.PGSQL.65535"))
        if longest > _SOCKET_PATH_LIMIT:
            return f"the path of a socket would be {longest} bytes long, and {_SOCKET_PATH_LIMIT} is the most"
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            found = self.path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o066:
                return "somebody else has taken it"
            if not self._belongs_to(data):
                return "another data directory uses it"
        except OSError as error:
            return error.strerror or str(error)
        try:
            write_atomically(self.owner, _identity(data))
            # Another account only needs to pass through.
            self.path.chmod(0o711 if account.drops else 0o700)
            self.server.mkdir(mode=0o700, exist_ok=True)
            self.server.chmod(0o700)
            account.take(self.server)
        except OSError as error:
            return error.strerror or str(error)
        return None if account.can_enter(self.server) else f"{account.name} may not enter it"

    def _belongs_to(self, data: DataDir) -> bool:
        # A copy of a data directory remembers the same name.
        try:
            return self.owner.read_text(encoding="utf-8") == _identity(data)
        except FileNotFoundError:
            return True

    def sweep_server(self) -> None:
        """Remove what a killed server left, its sockets and their locks. Only when no server is running."""
        for leftover in self.server.iterdir():
            leftover.unlink(missing_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _identity(data: DataDir) -> str:
    found = data.path.stat()
    return f"{found.st_dev}:{found.st_ino}\n"


def _names(data: DataDir, wanted: Path | None) -> list[Path]:
    """Where the sockets could be: where they were before, unless somebody wants them elsewhere now; then new names."""
    usual = ["/tmp", "/var/tmp", os.environ.get("XDG_RUNTIME_DIR", "")]  # noqa: S108 (the name is random and the mode 0700)
    bases = [wanted] if wanted is not None else [Path(base) for base in usual if base.startswith("/")]
    fresh = [base / f"sluicegate-{secrets.token_hex(4)}" for base in bases]
    try:
        previous = Path(data.socket_record.read_text(encoding="utf-8").strip())
    except OSError:
        return fresh
    usable = previous.is_absolute() and (wanted is None or previous.parent == wanted)
    return [previous, *fresh] if usable else fresh

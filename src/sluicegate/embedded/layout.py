"""Where the private PostgreSQL keeps what, and who may see it.

The data directory belongs to the user who works with it and holds ``cluster`` (PostgreSQL's own directory, owned by
the account it runs as), ``password``, ``server.log``, two lock files and ``supervisor.json``. Sockets cannot live
there, because the path of a unix socket is at most 107 bytes long: they have a short directory of their own, whose
name is random, kept in the data directory, and used again, so that the DSN outlives a restart.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from sluicegate.embedded.account import ServerAccount
from sluicegate.errors import EmbeddedError

__all__ = ["DataDir", "SocketDir"]

_SOCKET_PATH_LIMIT = 107
_ANOTHER_DIRECTORY = "Choose another one with --data-dir or SLUICEGATE_DATA_DIR"
_PASSWORD_BYTES = 24


@dataclass(frozen=True)
class DataDir:
    """The files of one data directory, by name. ``path`` is absolute."""

    path: Path

    @property
    def cluster(self) -> Path:
        return self.path / "cluster"

    @property
    def unfinished_cluster(self) -> Path:
        return self.path / "cluster.unfinished"

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    @property
    def password_file(self) -> Path:
        return self.path / "password"

    @property
    def supervisor_lock(self) -> Path:
        return self.path / "supervisor.lock"

    @property
    def starter_lock(self) -> Path:
        return self.path / "starter.lock"

    @property
    def record(self) -> Path:
        return self.path / "supervisor.json"

    @property
    def socket_record(self) -> Path:
        return self.path / "sockets"

    def prepare(self) -> None:
        """Make the directory if need be and see that it is ours and can be written. Raises EmbeddedError."""
        try:
            self.path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            pass
        except OSError as error:
            raise EmbeddedError(
                f"The data directory {self.path} cannot be made: {error.strerror}.", next_step=f"{_ANOTHER_DIRECTORY}."
            ) from error
        else:
            if os.geteuid() == 0:
                # PostgreSQL runs as somebody else then, who has to pass through to its own directory.
                self.path.chmod(0o711)
        self.require_ours()

    def require_ours(self) -> None:
        """Raise EmbeddedError unless this is a directory that belongs to us and that we can write."""
        try:
            found = self.path.stat()
        except OSError as error:
            raise EmbeddedError(
                f"The data directory {self.path} cannot be used: {error.strerror}.", next_step=f"{_ANOTHER_DIRECTORY}."
            ) from error
        if not stat.S_ISDIR(found.st_mode):
            raise EmbeddedError(
                f"The data directory {self.path} is not a directory.", next_step=f"{_ANOTHER_DIRECTORY}."
            )
        if found.st_uid != os.geteuid():
            owner, me = _user(found.st_uid), _user(os.geteuid())
            raise EmbeddedError(
                f"The data directory {self.path} belongs to {owner}, and this is {me}: a private PostgreSQL belongs "
                "to one user.",
                next_step=f"Run the command as {owner}, or choose another directory with --data-dir or "
                "SLUICEGATE_DATA_DIR.",
            )
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            raise EmbeddedError(
                f"The data directory {self.path} cannot be written by {_user(os.geteuid())}.",
                next_step=f"Make it writable (chmod u+rwx {self.path}; a read-only disk has to be mounted writable). "
                f"{_ANOTHER_DIRECTORY} otherwise.",
            )

    def has_password(self) -> bool:
        try:
            return self.password_file.stat().st_size > 0
        except FileNotFoundError:
            return False

    def make_password(self) -> str:
        """Write down a new password for the superuser, and return it."""
        password = secrets.token_hex(_PASSWORD_BYTES)
        write_atomically(self.password_file, f"{password}\n")
        return password

    def password(self) -> str:
        """The superuser's password. Raises EmbeddedError if its file is gone or may not be read."""
        try:
            if password := self.password_file.read_text(encoding="ascii").strip():
                return password
            problem = "is empty"
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
        raise EmbeddedError(
            f"The password of the private PostgreSQL, {self.password_file}, {problem}.",
            next_step="Remove the file and end the commands that use the server: its next start sets a new password.",
        )


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
    def open(cls, data: DataDir, account: ServerAccount) -> SocketDir:
        """Make the directory, or take the one this data directory had before. Raises EmbeddedError."""
        problems = []
        for path in _names(data):
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


def write_atomically(path: Path, text: str) -> None:
    """Replace a small file of ours that nobody else may read."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def read_record(data: DataDir) -> dict[str, object]:
    """What the last supervisor wrote down about itself; empty if there was none."""
    try:
        found = json.loads(data.record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _identity(data: DataDir) -> str:
    found = data.path.stat()
    return f"{found.st_dev}:{found.st_ino}\n"


def _names(data: DataDir) -> list[Path]:
    """Where the sockets could be: where they were before, unless somebody wants them elsewhere now; then new names."""
    chosen = os.environ.get("SLUICEGATE_SOCKET_DIR")
    bases = [chosen] if chosen else ["/tmp", "/var/tmp", os.environ.get("XDG_RUNTIME_DIR", "")]  # noqa: S108 (the name is random and the mode 0700)
    fresh = [Path(base) / f"sluicegate-{secrets.token_hex(4)}" for base in bases if base.startswith("/")]
    try:
        previous = Path(data.socket_record.read_text(encoding="utf-8").strip())
    except OSError:
        return fresh
    usable = previous.is_absolute() and (not chosen or previous.parent == Path(chosen))
    return [previous, *fresh] if usable else fresh


def _user(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user with id {uid}"

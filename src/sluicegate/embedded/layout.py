"""Where the private PostgreSQL keeps what, and who may see it.

The data directory belongs to the user who works with it and holds ``cluster`` (PostgreSQL's own directory, owned by
the account it runs as), ``password``, ``server.log``, two lock files and ``supervisor.json``. The sockets are elsewhere:
see ``sockets``.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from sluicegate.errors import EmbeddedError

__all__ = ["DataDir", "read_record", "write_atomically"]

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


def _user(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user with id {uid}"

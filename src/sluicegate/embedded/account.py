"""The account PostgreSQL runs as: our own, or, because PostgreSQL refuses to run as root, another one if we are root.

No account is ever created. Root becomes the owner of an existing cluster, else ``postgres``, else ``nobody``.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluicegate.errors import EmbeddedError

__all__ = ["ServerAccount", "choose_account", "die_with_parent", "server_environment"]

_CANDIDATES = ("postgres", "nobody")
_PR_SET_PDEATHSIG = 1
_KEPT_VARIABLES = ("PATH", "TMPDIR", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class ServerAccount:
    """Who PostgreSQL runs as. ``drops`` is true if that is not ourselves, which only root can do."""

    uid: int
    gid: int
    name: str
    drops: bool

    def identity(self) -> dict[str, Any]:
        """Arguments for subprocess that make the child run as this account and with no other group."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.drops else {}

    def take(self, path: Path) -> None:
        """Make this account the owner of one file or directory of ours; nothing below or above it changes."""
        if self.drops:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def can_enter(self, directory: Path) -> bool:
        """Whether the account may make ``directory`` its working directory by its path."""
        if not self.drops:
            return os.access(directory, os.X_OK)
        command = ["/bin/sh", "-c", 'cd -- "$0"', str(directory)]
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, check=False, **self.identity()
        )
        return done.returncode == 0


def choose_account(cluster: Path) -> ServerAccount:
    """The account for the cluster in ``cluster``, which need not exist yet. Raises EmbeddedError if there is none."""
    uid = os.geteuid()
    if uid != 0:
        return ServerAccount(uid, os.getegid(), _name(uid), drops=False)
    try:
        owner = cluster.stat()
    except FileNotFoundError:
        pass
    else:
        if owner.st_uid != 0:
            return ServerAccount(owner.st_uid, owner.st_gid, _name(owner.st_uid), drops=True)
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return ServerAccount(entry.pw_uid, entry.pw_gid, name, drops=True)
    raise EmbeddedError(
        "PostgreSQL refuses to run as root, and this machine has neither a user `postgres` nor a user `nobody` "
        "to run it as.",
        next_step="Run Sluicegate as an ordinary user, or give the DSN of an existing PostgreSQL with SLUICEGATE_DSN.",
    )


def require_passwd_entry(account: ServerAccount) -> None:
    """Raise EmbeddedError unless the account has a name, which initdb (but not the server) insists on."""
    try:
        pwd.getpwuid(account.uid)
    except KeyError:
        raise EmbeddedError(
            f"The user id {account.uid} has no entry in /etc/passwd, and PostgreSQL's initdb refuses to make a "
            "cluster for a user without a name.",
            next_step=f"Add an entry when you build the machine or image (for instance `useradd --uid {account.uid} "
            "sluicegate`), run as a user that has one, or give the DSN of an existing PostgreSQL with SLUICEGATE_DSN.",
        ) from None


def die_with_parent() -> Callable[[], None]:
    """A ``preexec_fn`` after which the child gets SIGINT, PostgreSQL's fast shutdown, when this thread ends.

    The kernel ties that to the thread that forks, so call Popen in the main thread. subprocess runs it after the
    change of user, which would have cleared it.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def server_environment() -> dict[str, str]:
    """What PostgreSQL gets of our environment: no PG* variable that would steer it, and nobody's secrets.

    English messages and UTC are set, so that failures can be recognised and no time zone has to be guessed.
    """
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C", "TZ": "UTC"}


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)

"""Running a command as somebody else, which only root can."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOT_IN_A_CLONE = {
    ".git",
    ".venv",
    ".venv.lock",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    ".import_linter_cache",
    "build",
    "dist",
}


def ordinary_user() -> pwd.struct_passwd:
    """An account that is not root: ``nobody`` if we are root, else our own."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


def as_user(account: pwd.struct_passwd) -> dict[str, Any]:
    """Arguments for subprocess that make a command run as that account."""
    if account.pw_uid == os.geteuid():
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def give(place: Path, account: pwd.struct_passwd) -> None:
    """Make the account the owner of ``place`` and everything below it."""
    if os.geteuid() != 0:
        return
    for path in (place, *place.rglob("*")):
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def repository_files(root: Path) -> Iterator[Path]:
    """What a clone of the repository would hold, relative to ``root``; git itself may be missing here."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in NOT_IN_A_CLONE]
        for name in names:
            if name not in NOT_IN_A_CLONE and not name.endswith(".pyc"):
                yield Path(folder, name).relative_to(root)

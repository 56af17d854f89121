"""Running a command as somebody else, which only root can."""

import os
import pwd
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


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


def repository_files(root: Path) -> list[Path]:
    """What a clone of the repository would hold, as paths relative to ``root``."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={root}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    names: Sequence[str] = listed.stdout.decode().split("\0")
    return [Path(name) for name in names if name and (root / name).is_file()]

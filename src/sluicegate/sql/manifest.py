"""What ships, by name and checksum alone.

Every client asks on its start whether the schema fits. That takes the checksums of the files, not an understanding of
them, which costs ten times as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["UNKNOWN", "Manifest", "Shipped", "digest", "library_version", "load_manifest", "read_text"]

# The version of a library that runs from a tree which was never installed.
UNKNOWN = "0"


@dataclass(frozen=True, slots=True)
class Shipped:
    """A file. ``version`` is the number of a migration, 0 for a function."""

    name: str
    sha256: str
    version: int = 0

    @property
    def label(self) -> str:
        return f"{self.version:04d}_{self.name}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that ships: migrations by number, functions by name."""

    migrations: tuple[Shipped, ...]
    functions: tuple[Shipped, ...]
    library: str

    @property
    def latest(self) -> int:
        return self.migrations[-1].version if self.migrations else 0


def read_text(path: Path) -> str:
    """The text of a file, with the ends of its lines as they were written here."""
    return path.read_text(encoding="utf-8").replace("\r\n", "\n")


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def library_version() -> str:
    """The version of the installed package, or ``UNKNOWN``."""
    try:
        return version("sluicegate")
    except PackageNotFoundError:
        return UNKNOWN


def load_manifest(directory: Path | None = None) -> Manifest:
    """Read what ships below ``directory``; the library's own, the default, once for the life of the process."""
    return _own() if directory is None else _read(directory)


@cache
def _own() -> Manifest:
    return _read(Path(__file__).parent)


def _read(root: Path) -> Manifest:
    return Manifest(
        tuple(
            Shipped(path.stem[5:], digest(read_text(path)), int(path.stem[:4]))
            for path in sorted((root / "migrations").glob("*.sql"))
        ),
        tuple(Shipped(path.stem, digest(read_text(path))) for path in sorted((root / "functions").rglob("*.sql"))),
        library_version(),
    )

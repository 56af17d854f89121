"""Where the settings come from: command line, environment, one TOML file, defaults, in this order.

The file is ``sluicegate.toml`` in the working directory, else ``$XDG_CONFIG_HOME/sluicegate/config.toml`` (by default
``~/.config/sluicegate/config.toml``); only the first that exists is read. Its keys are the fields of ``Settings``, and
a key that is none of them is refused by name. A setting is called ``SLUICEGATE_`` and its name in capitals in the
environment, where an empty value means "not set". A relative path in the file is relative to the file.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

from sluicegate.errors import InvalidArgument

__all__ = ["DEFAULT_LINGER_SECONDS", "DEFAULT_SCOPE", "Origin", "Settings"]

DEFAULT_SCOPE = "endpoint:default"
DEFAULT_LINGER_SECONDS = 60.0
LONGEST_LINGER_SECONDS = 86_400.0
SYSTEM_DATA_DIR = Path("/var/lib/sluicegate")

Origin = Literal["flag", "environment", "file", "default"]


def default_data_dir() -> Path:
    """``$XDG_DATA_HOME/sluicegate``; without that variable ``/var/lib/sluicegate`` for root, who drops to a user that
    may not enter root's home, and ``~/.local/share/sluicegate`` for everybody else.
    """
    if os.geteuid() == 0 and not _absolute_from_environment("XDG_DATA_HOME"):
        return SYSTEM_DATA_DIR
    return user_data_home() / "sluicegate"


def user_data_home() -> Path:
    """``$XDG_DATA_HOME``, by default ``~/.local/share``."""
    return _absolute_from_environment("XDG_DATA_HOME") or _home() / ".local" / "share"


@dataclass(frozen=True)
class Settings:
    """What everything else is told. Make it with ``load``, which says where each value came from.

    ``dsn`` names an existing PostgreSQL; None means the private one in ``data_dir``. ``scope`` is whose queues are
    meant. ``bindir`` holds the PostgreSQL programs to use for the private one; None: the best that can be found.
    ``embedded_linger`` is how many seconds the private PostgreSQL outlives its last client, 0 to 86,400. ``socket_dir``
    is a short, existing directory for its sockets; None: the first of the usual ones that will do.
    """

    dsn: str | None = field(default=None, repr=False)
    data_dir: Path = field(default_factory=default_data_dir)
    scope: str = DEFAULT_SCOPE
    bindir: Path | None = None
    embedded_linger: float = DEFAULT_LINGER_SECONDS
    socket_dir: Path | None = None
    file: Path | None = field(default=None, metadata={"internal": True})
    origins: Mapping[str, Origin] = field(default_factory=lambda: MappingProxyType({}), metadata={"internal": True})

    @classmethod
    def load(cls, **overrides: object) -> Self:
        """Settings for this process. ``overrides`` are what the command line gave; None there means "not given".

        Raises InvalidArgument, with the setting's name as ``field``, for a value that cannot be used and for a file
        that cannot be read.
        """
        unknown = sorted(set(overrides) - set(_PARSERS))
        if unknown:
            raise TypeError(f"Settings has no {', '.join(unknown)}")
        file = _find_file()
        found: dict[str, tuple[object, Origin, Path]] = {}
        if file is not None:
            found |= {name: (value, "file", file.parent) for name, value in _read(file).items()}
        here = Path()
        for name in _PARSERS:
            if text := os.environ.get(f"SLUICEGATE_{name.upper()}"):
                found[name] = (text, "environment", here)
        found |= {name: (value, "flag", here) for name, value in overrides.items() if value is not None}
        values: dict[str, Any] = {}
        for name, (value, origin, base) in found.items():
            values[name] = _PARSERS[name](name, value, _source(name, origin, file), base)
        origins: dict[str, Origin] = dict.fromkeys(_PARSERS, "default")
        origins |= {name: origin for name, (_, origin, _) in found.items()}
        return cls(**values, file=file, origins=MappingProxyType(origins))

    def origin(self, name: str) -> Origin:
        """Where the value of the setting ``name`` came from."""
        return self.origins.get(name, "default")


def _find_file() -> Path | None:
    config = _absolute_from_environment("XDG_CONFIG_HOME") or _home() / ".config"
    of_user = config / "sluicegate" / "config.toml"
    try:
        here = Path("sluicegate.toml").absolute()
    except FileNotFoundError:
        # The working directory has been removed.
        return of_user if os.path.lexists(of_user) else None
    return next((path for path in (here, of_user) if os.path.lexists(path)), None)


def _absolute_from_environment(name: str) -> Path | None:
    # The XDG specification tells readers to ignore relative paths in these variables.
    path = Path(os.environ.get(name, ""))
    return path if path.is_absolute() else None


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def _read(file: Path) -> dict[str, object]:
    try:
        _require_trusted(file)
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(
            f"The configuration file {file} cannot be read: {error.strerror or error}.",
            field="file",
            next_step=f"Make it readable for this user (chmod u+r {file}), or move it away.",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"The configuration file {file} is not TOML: {error}.", field="file", next_step="Correct that line."
        ) from error
    unknown = sorted(set(values) - set(_PARSERS))
    if unknown:
        raise InvalidArgument(
            f"The configuration file {file} sets {', '.join(unknown)}, which is no setting of Sluicegate.",
            field=unknown[0],
            next_step=f"Remove it, or correct its name. The settings are {', '.join(_PARSERS)}.",
        )
    return values


def _require_trusted(file: Path) -> None:
    """Refuse a file that somebody else has put into the directory we happen to stand in: it names what is run."""
    owner = file.stat().st_uid
    if owner not in (0, os.geteuid()):
        raise InvalidArgument(
            f"The configuration file {file} belongs to another user (id {owner}), who could make this one run anything.",
            field="file",
            next_step=f"If you trust it, make it yours (chown {os.geteuid()} {file}); else go to another directory.",
        )


def _source(name: str, origin: Origin, file: Path | None) -> str:
    return {
        "flag": f"--{name.replace('_', '-')}",
        "environment": f"SLUICEGATE_{name.upper()}",
        "file": f"{name} in {file}",
        "default": name,
    }[origin]


def _refuse(name: str, source: str, problem: str, next_step: str) -> InvalidArgument:
    return InvalidArgument(f"{source} {problem}.", field=name, next_step=next_step)


def _text(name: str, value: object, source: str, _base: Path) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _refuse(name, source, "has to be a text that is not empty", "Set it, or leave it out.")
    if "\0" in value:
        raise _refuse(name, source, "contains a NUL character", "Remove it.")
    return value


def _path(name: str, value: object, source: str, base: Path) -> Path:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    path = Path(_text(name, text, source, base))
    try:
        path = path.expanduser()
        return path if path.is_absolute() else (base / path).absolute()
    except RuntimeError as error:
        raise _refuse(name, source, f"is {path}, whose home directory is unknown", "Write an absolute path.") from error


def _seconds(name: str, value: object, source: str, _base: Path) -> float:
    problem = f"has to be a number of seconds between 0 and {LONGEST_LINGER_SECONDS:.0f}, not {value!r}"
    step = f"Leave it out for {DEFAULT_LINGER_SECONDS:.0f}."
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise _refuse(name, source, problem, step)
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_LINGER_SECONDS:
        raise _refuse(name, source, problem, step)
    return seconds


_PARSERS: Mapping[str, Callable[[str, object, str, Path], object]] = MappingProxyType(
    {"dsn": _text, "data_dir": _path, "scope": _text, "bindir": _path, "embedded_linger": _seconds, "socket_dir": _path}
)

assert set(_PARSERS) == {field.name for field in fields(Settings) if not field.metadata.get("internal")}

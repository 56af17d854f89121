"""Finding and signalling processes: by group, by session, by descent."""

import contextlib
import os
from typing import NamedTuple


class Kin(NamedTuple):
    """Whose a process is."""

    parent: int
    group: int
    session: int


def processes() -> dict[int, Kin]:
    """Every process that is not a zombie; empty where there is no /proc."""
    found = {}
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() and (kin := _kin(entry.name)) is not None:
                found[int(entry.name)] = kin
    return found


def family(pids: set[int], known: dict[int, Kin]) -> set[int]:
    """``pids`` and everything among ``known`` that descends from them."""
    found = set(pids)
    while new := {pid for pid, kin in known.items() if kin.parent in found} - found:
        found |= new
    return found


def members(leader: int) -> set[int]:
    """Everybody in the group or the session that ``leader`` leads, and all that descends from them or from it."""
    known = processes()
    near = {pid for pid, kin in known.items() if leader in (kin.group, kin.session)}
    return family(near | {leader}, known)


def children(pid: int) -> list[int]:
    """The children of this single-threaded process, whose number is ``pid``, zombies too."""
    try:
        return [int(child) for child in _read(f"/proc/self/task/{pid}/children").split()]
    except OSError:
        return [child for child, kin in processes().items() if kin.parent == pid]


def kill(pid: int, number: int) -> None:
    """Signal a process, if it is still there and ours to signal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_group(group: int, number: int) -> bool:
    """Signal a process group; False if nobody is left in it. What runs as another user cannot be reached."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def group_of(pid: int) -> int:
    """The process group of ``pid``, 0 if it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _kin(pid: str) -> Kin | None:
    try:
        # The name of the program comes before the last parenthesis and may hold anything.
        state, parent, group, session, *_ = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state == b"Z" else Kin(int(parent), int(group), int(session))


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        text = b""
        while piece := os.read(descriptor, 65536):
            text += piece
        return text
    finally:
        os.close(descriptor)

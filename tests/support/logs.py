"""Server logs: where they are, and the words that must never stand in them."""

from pathlib import Path

FORBIDDEN = "deadlock detected"


def server_log(path: Path) -> str:
    """The text of a server log so far; empty if the server has not written one."""
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def deadlocks(place: Path) -> list[str]:
    """Every line about a deadlock in the log files below ``place``, as ``path:line: text``."""
    found = []
    for path in sorted(place.rglob("*.log")):
        try:
            lines = path.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for number, line in enumerate(lines, 1):
            if FORBIDDEN in line:
                found.append(f"{path}:{number}: {line.strip()}")
    return found

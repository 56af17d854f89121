"""The verbs, one file each: ``commands/claim.py`` holds ``run``, whose signature and docstring are ``sluicegate claim``.

A new command is a file here and a line in ``COMMANDS``. Commands do not know each other, and import what is heavy (the
driver, progress bars) only when they run.
"""

from __future__ import annotations

from typing import NamedTuple

START = "Start here"
JOBS = "Jobs"
WORK = "Work on jobs"
DATABASE = "Database"


class Command(NamedTuple):
    """A verb, and the heading under which help lists it."""

    name: str
    group: str

    @property
    def module(self) -> str:
        return f"{__name__}.{self.name}"


COMMANDS = (
    Command("demo", START),
    Command("up", START),
    Command("enqueue", JOBS),
    Command("jobs", JOBS),
    Command("job", JOBS),
    Command("retry", JOBS),
    Command("cancel", JOBS),
    Command("exec", WORK),
    Command("claim", WORK),
    Command("heartbeat", WORK),
    Command("complete", WORK),
    Command("fail", WORK),
    Command("release", WORK),
    Command("migrate", DATABASE),
    Command("doctor", DATABASE),
)

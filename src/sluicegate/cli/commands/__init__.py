"""The verbs, one file each: ``commands/claim.py`` holds ``run``, whose signature and docstring are ``sluicegate claim``,
and ``commands/queue_budget_set.py`` that of ``sluicegate queue budget set``.

A new command is a file here and a line in ``COMMANDS``. Commands do not know each other, and import what is heavy (the
driver, progress bars) only when they run.
"""

from __future__ import annotations

from typing import NamedTuple

START = "Start here"
JOBS = "Jobs"
WORK = "Work on jobs"
BUDGETS = "Budgets"
DATABASE = "Database"


class Command(NamedTuple):
    """A verb of one word or several, and the heading under which help lists it."""

    name: str
    group: str

    @property
    def module(self) -> str:
        return f"{__name__}.{self.name.replace(' ', '_')}"

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.name.split())


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
    Command("explain", BUDGETS),
    Command("next", BUDGETS),
    Command("admission", BUDGETS),
    Command("queue budget show", BUDGETS),
    Command("queue budget set", BUDGETS),
    Command("queue budget clear", BUDGETS),
    Command("queue budget pause", BUDGETS),
    Command("queue budget resume", BUDGETS),
    Command("queue budget reset", BUDGETS),
    Command("queue budget audit", BUDGETS),
    Command("queue budget rehearse", BUDGETS),
    Command("migrate", DATABASE),
    Command("doctor", DATABASE),
)

# Words that only open the name of a command, and what help says of them.
PREFIXES = {
    ("queue",): "A queue and what belongs to it.",
    ("queue", "budget"): "How much of a queue may start: show, set, pause and audit it.",
}

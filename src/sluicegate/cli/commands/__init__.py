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


class Verb(NamedTuple):
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
    Verb("demo", START),
    Verb("up", START),
    Verb("enqueue", JOBS),
    Verb("jobs", JOBS),
    Verb("job", JOBS),
    Verb("retry", JOBS),
    Verb("cancel", JOBS),
    Verb("exec", WORK),
    Verb("work", WORK),
    Verb("claim", WORK),
    Verb("heartbeat", WORK),
    Verb("complete", WORK),
    Verb("fail", WORK),
    Verb("release", WORK),
    Verb("explain", BUDGETS),
    Verb("next", BUDGETS),
    Verb("admission", BUDGETS),
    Verb("queue budget show", BUDGETS),
    Verb("queue budget set", BUDGETS),
    Verb("queue budget clear", BUDGETS),
    Verb("queue budget pause", BUDGETS),
    Verb("queue budget resume", BUDGETS),
    Verb("queue budget reset", BUDGETS),
    Verb("queue budget audit", BUDGETS),
    Verb("queue budget rehearse", BUDGETS),
    Verb("migrate", DATABASE),
    Verb("doctor", DATABASE),
)

# Words that only open the name of a command, and what help says of them.
PREFIXES = {
    ("queue",): "A queue and what belongs to it.",
    ("queue", "budget"): "How much of a queue may start: show, set, pause and audit it.",
}

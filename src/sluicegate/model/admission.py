"""Admission as people see it: what is closed and until when, how much is used, what would have been."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sluicegate.model._record import Record
from sluicegate.model.job import JobRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedGate(Record):
    """A limit that admits nothing now.

    ``gate`` is ``window``, ``in_flight``, ``pause`` or ``policy``; ``period`` the window's. ``used`` may be above
    ``limit`` after the limit was lowered. It opens at ``until`` (None: not known), surely so if ``exact``.
    """

    gate: str
    period: str | None
    limit: int | None
    used: int | None
    until: datetime | None
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(ClosedGate):
    """A limit, open or ``closed``. ``mode`` is ``enforce``, or ``shadow`` for one that only counts; ``starts`` a window's."""

    closed: bool
    mode: str | None = None
    starts: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferral(Record):
    """A closed queue in the answer to a claim: why, until when, and how much waits in it.

    ``reason`` is ``admission_unavailable``, ``paused``, ``window_exhausted``, ``headroom_low`` or ``in_flight_full``.
    ``next_eligible_at`` is the latest time of the closed gates in ``all``, None when one is unknown; ``pending`` is at
    least the number of waiting jobs that could be counted, ``pending_exact`` whether it is all of them.
    """

    queue: str
    reason: str
    pending: int
    pending_exact: bool
    next_eligible_at: datetime | None
    exact: bool
    all: tuple[ClosedGate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Record):
    """Whether one claim made now and alone would take the head job of a queue: ``admitted`` or ``deferred``.

    ``fault`` says what is wrong with a policy that cannot be evaluated.
    """

    state: str
    reason: str | None
    next_eligible_at: datetime | None
    exact: bool
    all: tuple[ClosedGate, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Record):
    """A calendar window: ``period`` hour, day, week or month, in the zone ``tz``, from ``start`` (HH:MM) on.

    A week starts on its ``weekday`` (Mon to Sun), a month on its ``day`` (1 to 28).
    """

    period: str
    tz: str
    start: str = "00:00"
    weekday: str | None = None
    day: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimit(Record):
    """At most so many claims a window. ``mode`` is ``enforce`` or ``shadow``."""

    max_claims_per_window: int
    window: Window
    mode: str = "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedClaim(Record):
    """A transaction that may have claimed before a first policy was seen, open ``since`` then.

    A session has a ``pid``, a prepared transaction its gid under ``prepared``; None is what may not be looked into.
    """

    pid: int | None
    application: str | None
    state: str | None
    prepared: str | None
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgiven(Record):
    """What was forgiven of the charges of a window, which ``starts`` then: its limit admits as many more."""

    period: str
    tz: str
    starts: datetime
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAdmission(Record):
    """The policy of a queue, what is used of it, and the verdict.

    ``status`` is ``admitted``, the reason why nothing is, or ``ungoverned`` without a policy; then the rest is empty.
    ``lanes`` is what was asked for, None for as many as the limits call for. ``pending`` is None where it was not
    counted. While a first policy is ``opening`` it admits nothing: the claims in
    ``awaited`` have to end first. ``forgiven`` is told by a reset, of what it forgave, and by a budget, of all that was
    forgiven in the current windows.
    """

    queue: str
    status: str
    max_in_flight: int | None = None
    in_flight_mode: str = "enforce"
    limits: tuple[WindowLimit, ...] = ()
    paused: bool = False
    paused_reason: str | None = None
    paused_until: datetime | None = None
    lanes: int | None = None
    revision: int = 0
    verdict: Verdict | None = None
    gates: tuple[Gate, ...] = ()
    pending: int | None = None
    pending_exact: bool | None = None
    opening: bool = False
    awaited: tuple[AwaitedClaim, ...] = ()
    forgiven: tuple[Forgiven, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionStatus(Record):
    """The governed queues of a scope, or the one asked for, at ``server_time``."""

    queues: tuple[QueueAdmission, ...]
    server_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog(Record):
    """How many jobs wait; ``exact`` is false where counting stopped at a bound."""

    pending: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedWindow(Record):
    """A window of a limit, the current one or one in the past: what was charged, and what of it was forgiven.

    ``partial``: the limit was taken away before the window ended, and what was claimed without it is not in ``charged``.
    """

    period: str
    tz: str
    starts: datetime
    ends: datetime
    charged: int
    forgiven: int
    partial: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowLimit(Record):
    """What a limit that only counts would have refused, had it been enforced.

    A window's: the charges beyond its ``limit`` in the current window, and ``refused_before`` in those kept of the past.
    The in-flight limit's: the claims made while so many or more were in flight, in the last 7 days. ``since`` is where
    the counting begins, None if there is nothing to count.
    """

    gate: str
    period: str | None
    limit: int
    refused: int
    refused_before: int | None
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(QueueAdmission):
    """All about the budget of a queue. ``charged_for_retries`` and ``refused``, refusals by reason, are since ``counted_since``: when the earliest
    current window began, or midnight UTC without one.

    ``shadow`` has an entry for each limit that only counts, ``windows`` the last 30 windows of each limit.
    """

    scope: str
    backlog: Backlog
    oldest_pending_at: datetime | None
    next_boundary_at: datetime | None
    charged_for_retries: int
    counted_since: datetime
    refused: Any
    shadow: tuple[ShadowLimit, ...]
    windows: tuple[UsedWindow, ...]
    server_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(Record):
    """One change of a policy: by whom, through which endpoint and database user, from what to what, and why."""

    id: int
    at: datetime
    verb: str
    human: str | None
    endpoint: str | None
    database_user: str | None
    before: Any
    after: Any
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetAudit(Record):
    """The changes of a queue's policy, newest first."""

    queue: str
    audit: tuple[AuditEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedDay(Record):
    """A UTC day under a proposed policy: of its ``claims``, how many at once, how many later, how many still not."""

    day: str
    claims: int
    admitted: int
    deferred: int
    still_deferred: int
    longest_wait_seconds: float
    total_wait_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal(Record):
    """What a proposed policy would have done with the claims of the last ``days``.

    ``never`` counts those that it would not have admitted at all; ``cut`` says that older claims were left out.
    """

    queue: str
    days: int
    claims: int
    never: int
    cut: bool
    per_day: tuple[RehearsedDay, ...]
    server_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder(Record):
    """A claimed job of a queue whose in-flight limit is full: whose end frees a place."""

    job_id: int
    kind: str
    worker: str | None
    claimed_at: datetime
    lease_expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(Record):
    """Why a job does not run, and when it will.

    ``waits_for`` is ``admission``, ``run_at``, ``running``, ``end`` (its lease ran out and nobody may take it over: the
    next claim while its queue is open, or reap, ends it) or ``ended``. ``position`` counts the jobs before it in its queue and
    class; ``expected_at`` is when it runs if nothing changes, None if that is not known, and a hint only unless
    ``expected_exact``. ``command`` would admit it now, also past those before it; None if nothing is in its way. ``holders``
    are up to ten jobs that fill the in-flight limit, the one whose lease ends first in front; empty if that is not full.
    ``paused_reason`` is what was said when the queue was paused, None if it is not.
    """

    job: JobRow
    waits_for: str
    verdict: Verdict
    gates: tuple[Gate, ...]
    governed: bool
    position: int | None
    position_exact: bool | None
    expected_at: datetime | None
    expected_exact: bool | None
    charged: int
    charged_for_retries: int
    command: str | None
    holders: tuple[Holder, ...]
    server_time: datetime
    paused_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDemand(Record):
    """How many jobs of a queue could start now.

    ``waiting`` counts those that are due, to as many as were asked for, and is all of them if ``waiting_exact``; ``ready``
    is no more than an open queue's limits leave room for. A closed queue has its ``reason``, whether anything waits in it
    or not, the closed gates in ``all``, and ``next_eligible_at`` if that is known, a hint unless ``exact``. Where nothing
    waits, the next job is due at ``next_due_at``.
    """

    queue: str
    ready: int
    waiting: int
    waiting_exact: bool
    reason: str | None
    next_eligible_at: datetime | None
    exact: bool
    all: tuple[ClosedGate, ...]
    next_due_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand(Record):
    """What could start now, a queue each, in the order they were asked for."""

    queues: tuple[QueueDemand, ...]
    server_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NextJob(Record):
    """A job that waits: ``status`` is ``admitted``, ``deferred`` (with its ``reason``) or ``scheduled``."""

    id: int
    queue: str
    kind: str
    title: str
    state: str
    priority: int
    run_at: datetime
    status: str
    reason: str | None
    expected_at: datetime | None
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NextJobs(Record):
    """What runs next, in the order it is expected to."""

    jobs: tuple[NextJob, ...]
    server_time: datetime

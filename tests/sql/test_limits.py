"""Each limit is stated twice, in SQL, which decides, and in Python, which answers early: both say the same.

No number stands here: the ends of what Python takes are searched for, and SQL has to agree at them and one beyond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest

from sluicegate.errors import InvalidArgument
from sluicegate.model import Backoff, FinishItem, Lease, NewJob
from sluicegate.ops import budget_requests, requests
from tests.sql.verbs import Json, Sql

SCOPE = "endpoint:default"
LEASE = Lease(1, "token")
HELD: Json = {"job_id": 1, "lease_token": "token"}
# Beyond every limit there is, but for ids.
FAR = 70_000_000


def text(size: int) -> str:
    return "x" * size


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@dataclass(frozen=True)
class Limit:
    """A measure that both sides bound. ``python`` takes it or raises; ``sql`` says which verb to call how with it."""

    name: str
    python: Callable[[Any], object]
    sql: Callable[[Any], tuple[str, Json]]
    field: str
    far: int = FAR
    # The least of what can be said at all: a text is not shorter than empty.
    nothing: int = -40_000


def job(name: str, value: Callable[[int], Any] = int, field: str | None = None, **more: Any) -> Limit:
    """A field of a job."""
    given = {"queue": "q"}

    def python(n: int) -> object:
        return requests.enqueue(replace(NewJob("q"), **{name: value(n)}), scope=SCOPE, request_id=None)

    def sql(n: int) -> tuple[str, Json]:
        said = value(n)
        if isinstance(said, Backoff):
            said = said.to_dict()
        return "enqueue", {**given, name: list(said) if isinstance(said, tuple) else said}

    return Limit(f"job {name}{'' if field is None else ' ' + field}", python, sql, name, **more)


def claim(name: str, value: Callable[[int], Any] = int, **more: Any) -> Limit:
    """A term of a claim."""

    def python(n: int) -> object:
        every = {"queues": ["q"], "n": 1, "lease_seconds": None, "request_id": None, "worker": None}
        return requests.claim(**{**every, name: value(n)}, finished=(), scope=SCOPE)

    def sql(n: int) -> tuple[str, Json]:
        if name == "worker":
            return "claim", {"requests": [{"queues": ["q"]}], "worker": value(n)}
        return "claim", {"requests": [{"queues": ["q"], name: value(n)}]}

    return Limit(f"claim {name}", python, sql, name, **more)


def call(
    verb: str, name: str, python: Callable[[Any], object], given: Json, value: Callable[[int], Any] = int, **more: Any
) -> Limit:
    """An argument of some other verb."""
    return Limit(
        f"{verb} {name}", lambda n: python(value(n)), lambda n: (verb, {**given, name: value(n)}), name, **more
    )


def released(field: str, outcome: Callable[..., object]) -> Callable[[Any], object]:
    return lambda value: outcome(LEASE, scope=SCOPE, **{field: value})


def prune(field: str) -> Callable[[Any], object]:
    every = {"job_days": 30, "keep_jobs": 500_000, "attempt_days": 45, "limit": 10_000}
    return lambda value: requests.prune(**{**every, field: value})


def fail(value: Any) -> object:
    return requests.fail(LEASE, "boom", retry_in_seconds=value, retry=True, summary=None, scope=SCOPE)


def listed(value: Any) -> object:
    return requests.list_jobs(queue=None, state=None, kind=None, limit=value, before_id=None, scope=SCOPE)


def set_policy(field: str) -> Callable[[Any], object]:
    every: Json = {"name": "policy", "reason": None, "revision": None, "scope": SCOPE}
    return lambda value: budget_requests.policy("q", {"max_in_flight": 1}, **{**every, field: value})


BULK = {"queue": "q"}
TEXT: Json = {"nothing": 0, "far": 2_000_000}
COUNT: Json = {"nothing": 0, "far": 12_000}
IDS: Json = {"far": 2**64}
LIMITS = [
    job("queue", text, **TEXT),
    job("kind", text, **TEXT),
    job("title", text, **TEXT),
    job("dedup_key", text, **TEXT),
    job("payload", text, **TEXT),
    job("payload", nested, "nesting", **{**COUNT, "far": 800}),
    job("priority"),
    job("max_attempts"),
    job("tags", lambda n: ("t",) * n, "count", **COUNT),
    job("tags", lambda n: (text(n),), "length", **TEXT),
    job("backoff", lambda n: Backoff(base_seconds=n), "base"),
    job("backoff", lambda n: Backoff(base_seconds=0, max_seconds=n), "max"),
    claim("n"),
    claim("lease_seconds"),
    claim("queues", lambda n: ["q"] * n, **COUNT),
    claim("request_id", text, **TEXT),
    claim("worker", text, **TEXT),
    call(
        "enqueue_many", "jobs",
        lambda jobs: requests.enqueue_many([NewJob(**one) for one in jobs], scope=SCOPE, request_id=None),
        {}, lambda n: [BULK] * n, **COUNT,
    ),
    call(
        "claim", "finished",
        lambda items: requests.finish_many([FinishItem.completed(LEASE)] * len(items), scope=SCOPE, wait=True),
        {"requests": []}, lambda n: [{**HELD, "job_id": 10**9 + i, "outcome": "completed"} for i in range(n)], **COUNT,
    ),
    call(
        "heartbeat_many", "items",
        lambda items: requests.heartbeat_many([LEASE] * len(items), lease_seconds=None, shorten=False, scope=SCOPE),
        {}, lambda n: [{**HELD, "job_id": 10**9 + i} for i in range(n)], **COUNT,
    ),
    call("heartbeat", "lease_seconds",
        lambda value: requests.heartbeat(LEASE, lease_seconds=value, shorten=False, note=None, scope=SCOPE), HELD),
    call("claim_job", "lease_seconds",
        lambda value: requests.claim_job(1, lease_seconds=value, worker=None, request_id=None, scope=SCOPE), {"job_id": 1}),
    call("fail", "retry_in_seconds", fail, {**HELD, "error": "boom"}, float),
    call("complete", "result",
        lambda value: requests.complete(LEASE, value, summary=None, scope=SCOPE), HELD, text, nothing=0, far=2_000_000),
    call("complete", "result", lambda value: requests.complete(LEASE, value, summary=None, scope=SCOPE), HELD, nested,
        nothing=0, far=800),
    call("reap", "limit", lambda value: requests.reap(value, scope=SCOPE), {}),
    call("prune", "job_days", prune("job_days"), {}),
    call("prune", "keep_jobs", prune("keep_jobs"), {}, **IDS),
    call("prune", "attempt_days", prune("attempt_days"), {}),
    call("prune", "limit", prune("limit"), {}),
    call("list_jobs", "limit", listed, {}),
    call("get_job", "attempts_limit",
        lambda value: requests.get_job(1, attempts_limit=value, scope=SCOPE), {"job_id": 1}),
    call("next_jobs", "limit", lambda value: budget_requests.next_jobs(None, limit=value, scope=SCOPE), {}),
    call("budget_audit", "limit", lambda value: budget_requests.audit("q", limit=value, scope=SCOPE), {"queue": "q"}),
    call("rehearse", "days", lambda value: budget_requests.rehearse("q", {"max_in_flight": 1}, days=value, scope=SCOPE),
        {"queue": "q", "policy": {"max_in_flight": 1}}),
    call("set_admission_policy", "reason", set_policy("reason"),
        {"queue": "q", "policy": {"max_in_flight": 1}}, text, **TEXT),
    call("clear_admission_policy", "reason",
        lambda value: budget_requests.clear("q", reason=value, revision=None, scope=SCOPE), {"queue": "q"}, text, **TEXT),
    call("pause_queue", "reason",
        lambda value: budget_requests.pause("q", reason=value, until=None, scope=SCOPE), {"queue": "q"}, text, **TEXT),
    call("resume_queue", "reason",
        lambda value: budget_requests.change("q", reason=value, scope=SCOPE), {"queue": "q"}, text, **TEXT),
    call("reset_usage", "reason",
        lambda value: budget_requests.reset("q", period=None, reason=value, scope=SCOPE), {"queue": "q"}, text, **TEXT),
    call("queue_stats", "scope", lambda value: requests.queue_stats(scope=value), {}, lambda n: f"endpoint:{text(n)}",
        nothing=0, far=2_000),
]  # fmt: skip


def taken_by_python(limit: Limit, n: int) -> bool:
    try:
        limit.python(n)
    except InvalidArgument:
        return False
    return True


def taken_by_sql(sql: Sql, limit: Limit, n: int) -> bool:
    """Whether the value is one that the verb can be asked about: not whether it has what is asked for."""
    verb, arguments = limit.sql(n)
    code = ""
    with sql.transaction():
        try:
            sql.call(verb, **arguments)
        except psycopg.Error as error:
            code = str(error.sqlstate)
    # The last two: a number that the type of the argument does not hold.
    assert code in {"", "SG001", "SG002", "SG003", "22003", "42883"}, f"{limit.name} {n}: {code}"
    return code not in {"SG001", "22003", "42883"}


def ends(limit: Limit) -> tuple[int, int]:
    """The least and the greatest that Python takes."""
    inside = next(n for n in (1, 50, 0, 2, -1) if taken_by_python(limit, n))
    least, most = limit.nothing, limit.far
    low, high = least - 1, inside
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if taken_by_python(limit, middle) else (middle, high)
    least = high
    low, high = inside, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if taken_by_python(limit, middle) else (low, middle)
    return least, low


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name.replace(" ", "-"))
def test_sql_takes_what_python_takes_and_not_one_more(sql: Sql, limit: Limit) -> None:
    sql.enqueue("q")
    least, most = ends(limit)
    assert least < most < limit.far - 1, "Python bounds it"
    for n, inside in ((least, True), (most, True), (least - 1, False), (most + 1, False)):
        if n >= limit.nothing:
            assert taken_by_sql(sql, limit, n) is inside, (limit.name, n)


CLIPPED: list[tuple[str, str, Callable[[str], Any], Json]] = [
    ("complete", "summary", lambda said: requests.complete(LEASE, None, summary=said, scope=SCOPE), HELD),
    ("fail", "summary", lambda said: requests.fail(
        LEASE, "e", retry_in_seconds=None, retry=True, summary=said, scope=SCOPE), {**HELD, "error": "e"}),
    ("fail", "error", lambda said: requests.fail(
        LEASE, said, retry_in_seconds=None, retry=True, summary=None, scope=SCOPE), HELD),
    ("release", "reason", lambda said: requests.release(
        LEASE, reason=said, not_before=None, started=True, scope=SCOPE), HELD),
    ("heartbeat", "note", lambda said: requests.heartbeat(
        LEASE, lease_seconds=None, shorten=False, note=said, scope=SCOPE), HELD),
    ("cancel", "reason", lambda said: requests.cancel(1, reason=said, scope=SCOPE), {"job_id": 1}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "field", "python", "given"), CLIPPED, ids=[f"{verb}-{field}" for verb, field, *_ in CLIPPED]
)
def test_last_words_are_clipped_to_what_sql_takes(
    sql: Sql, verb: str, field: str, python: Callable[[str], Any], given: Json
) -> None:
    sent = len(python(text(100_000))[field].encode())
    limit = Limit(field, lambda n: n, lambda n: (verb, {**given, field: text(n)}), field)
    # Of an error Python keeps a quarter of what SQL would take.
    most = sent * 4 if field in {"error", "reason"} else sent
    assert taken_by_sql(sql, limit, most)
    assert not taken_by_sql(sql, limit, most + 1)

"""The one rule: a queue is admitted exactly when one claim of one job, made now and alone, takes its head job.

A state machine does whatever people, workers and time do to queues under policies; after every step all who answer for
admission are asked, a claim is tried, and the books are compared with the attempts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sluicegate.testing import advance_clock, freeze_clock, restore_clock
from tests.sql.admission_checks import Charges, check_limits, check_rule, claimed
from tests.sql.verbs import Json, Sql, check_ledger, completed, failed, lease, released
from tests.support.counts import full, rounds

QUEUES = ("a", "b")
# Just before clocks go forward in Los Angeles, on a Sunday, with an hour's boundary ahead.
START = datetime(2026, 3, 8, 9, 58, 30, tzinfo=UTC)
_KEPT = {"owner", "endpoint", "migration"}

WINDOWS: list[Json] = [
    {"period": "hour", "tz": "UTC"},
    {"period": "hour", "tz": "Asia/Kathmandu"},
    {"period": "day", "tz": "UTC"},
    {"period": "day", "tz": "America/Los_Angeles", "start": "02:30"},
    {"period": "week", "tz": "UTC", "weekday": "Mon"},
]
modes = st.sampled_from(["enforce", "enforce", "enforce", "shadow"])
limit = st.builds(
    lambda most, mode, where: {"max_claims_per_window": most, "mode": mode, "window": where},
    st.sampled_from([2, 3, 1, 4, 6, 0]),
    modes,
    st.sampled_from(WINDOWS),
)
limits = st.lists(limit, min_size=1, max_size=3, unique_by=lambda limit: str(limit["window"]))
caps = st.sampled_from([2, 1, 3, 4, 0])
lanes = st.sampled_from([1, 2, 3, 5, 16])
policies = st.one_of(
    st.fixed_dictionaries({"limits": limits, "lanes": lanes}),
    st.fixed_dictionaries({"max_in_flight": caps, "lanes": lanes}),
    st.fixed_dictionaries({"limits": limits, "max_in_flight": caps, "lanes": lanes, "in_flight_mode": modes}),
)
queues = st.sampled_from(QUEUES)
number = st.integers(0, 99)
# What may be done about a queue's policy: the verb with what it is given.
changes = st.one_of(
    st.tuples(st.just("set"), policies),
    st.tuples(st.just("set"), policies),
    st.tuples(st.just("patch"), st.fixed_dictionaries({"max_in_flight": st.none() | caps})),
    st.tuples(st.just("patch"), st.fixed_dictionaries({"lanes": lanes})),
    st.tuples(st.just("move"), st.sampled_from([-1, 1, -2, 3])),
    st.tuples(st.just("clear"), st.none()),
    st.tuples(st.just("pause"), st.sampled_from([20, 100, 5000, None])),
    st.tuples(st.just("resume"), st.none()),
    st.tuples(st.just("reset"), st.sampled_from([None, "hour", "day"])),
)


def _refused(call: Callable[[], object], *codes: str) -> bool:
    """Whether the call was refused with one of ``codes``; anything else is raised."""
    try:
        call()
    except psycopg.Error as error:
        if error.sqlstate not in codes:
            raise
        return True
    return False


class Admission(RuleBasedStateMachine):
    """Two governed queues and a free one, with everything that may happen to them. ``sql`` is set by the test."""

    sql: Sql
    seen: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Json] = []
        self.asked: list[tuple[str, Json, datetime]] = []
        self.jobs: list[int] = []
        self.charges = Charges()
        self.calls = 0
        self.opened = 0
        self.latest = START
        tables = self.sql.rows("select tablename from pg_tables where schemaname = 'sluicegate'")
        for table in tables:
            if table["tablename"] not in _KEPT:
                self.sql.do(f"delete from sluicegate.{table['tablename']}")
        freeze_clock(self.sql.connection, START)
        # Which lane a claim tries first is a matter of chance, but of the same in every run.
        self.sql.one("select setseed(0.5)")

    @initialize(before=st.integers(0, 5), policy=policies, other=st.none() | policies)
    def begin(self, before: int, policy: Json, other: Json | None) -> None:
        for queue, first in zip(QUEUES, (policy, other), strict=True):
            self.enqueue(queue, 8, 2, None)
            self.rush(queue, before)
            if first is not None:
                self.policy(queue, ("set", first))

    # Work

    @rule(queue=queues, n=st.integers(1, 6), most=st.integers(1, 3), delay=st.sampled_from([None, 0, 45, 4000]))
    def enqueue(self, queue: str, n: int, most: int, delay: int | None) -> None:
        due = None if delay is None else (self.now() + timedelta(seconds=delay)).isoformat()
        self.jobs += self.sql.enqueue_many(
            {"queue": queue, "max_attempts": most, "run_at": due, "priority": index % 3} for index in range(n)
        )

    def note(self, claims: list[Json]) -> None:
        self.held += claims
        self.opened += len(claims)
        for queue in {claim["job"]["queue"] for claim in claims}:
            self.within_cap(queue)

    def within_cap(self, queue: str) -> None:
        """What has just been admitted is not above the cap."""
        cap = self.sql.one(
            "select p.max_in_flight from sluicegate.policy p join sluicegate.queue q on q.id = p.queue_id"
            " where q.name = %s and p.in_flight_mode = 'enforce'",
            queue,
        )
        assert cap is None or claimed(self.sql, queue) <= cap

    @rule(
        queues=st.lists(queues, min_size=1, max_size=2, unique=True),
        n=st.integers(1, 7),
        seconds=st.sampled_from([30, 600]),
    )
    def claim_next(self, queues: list[str], n: int, seconds: int) -> None:
        self.calls += 1
        request: Json = {"n": n, "lease_seconds": seconds, "request_id": f"r{self.calls}"}
        answer = self.sql.claim(*queues, **request)
        assert len(answer["claims"]) <= n
        assert answer["claims"] or answer["deferred"] or answer["empty"], answer
        self.note(answer["claims"])
        if answer["claims"]:
            self.asked.append((f"r{self.calls}", {"queues": queues, **request}, self.now()))

    @rule(queue=queues, times=st.integers(2, 6))
    def rush(self, queue: str, times: int) -> None:
        """One job after the other, until nothing is left to take."""
        for _ in range(times):
            self.note(self.sql.claim(queue, lease_seconds=60)["claims"])

    @rule(queue=queues, n=st.integers(1, 4), which=st.lists(number, min_size=1, max_size=3))
    def claim_with_finishes(self, queue: str, n: int, which: list[int]) -> None:
        ends = [(completed, failed, released)[pick % 3](self.pick(pick)) for pick in which if self.held]
        answer = self.sql.claim(queue, n=n, finished=ends)
        assert answer["error"] is None
        self.note(answer["claims"])

    @rule(which=number, seconds=st.sampled_from([30, 600]))
    def claim_job(self, which: int, seconds: int) -> None:
        job = self.some_job(which)
        before = self.sql.job(job)
        verdict = self.sql.one("select sluicegate.verdict(queue_id) from sluicegate.job where id = %s", job)
        answer = self.sql.call("claim_job", job_id=job, lease_seconds=seconds)
        if answer["status"] == "ok":
            assert verdict["state"] == "admitted"
            self.note([answer["claim"]])
        elif answer["status"] == "deferred":
            assert self.sql.job(job) == before
            if verdict["state"] == "admitted":
                # Only what takes over a lapsed claim has room.
                assert (before["state"] == "claimed", answer["deferred"]["reason"]) == (False, "in_flight_full")
            else:
                assert answer["deferred"]["reason"] == verdict["reason"]
        else:
            assert answer["status"] == "conflict"

    @rule(which=number)
    def repeat(self, which: int) -> None:
        if not self.asked:
            return
        request_id, request, _ = self.asked[which % len(self.asked)]
        before = check_ledger(self.sql)
        answer = self.sql.claim(*request["queues"], **{name: request[name] for name in request if name != "queues"})
        assert (answer["replayed"], check_ledger(self.sql)) == (True, before), request_id
        self.held += answer["claims"]

    def pick(self, which: int) -> Json:
        return self.held.pop(which % len(self.held))

    def some_job(self, which: int) -> int:
        return self.jobs[which % len(self.jobs)]

    @rule(
        which=number,
        how=st.sampled_from(["complete", "complete", "fail", "now", "dead", "release", "unstarted", "later", "keep"]),
    )
    def finish(self, which: int, how: str) -> None:
        if not self.held:
            return
        claim = self.pick(which)
        match how:
            case "complete":
                self.sql.complete(claim)
            case "fail":
                self.sql.fail(claim)
            case "now":
                self.sql.fail(claim, retry_in_seconds=0.0)
            case "dead":
                self.sql.fail(claim, retry=False)
            case "release" | "unstarted":
                self.sql.release(claim, started=how == "release")
            case "later":
                self.sql.release(claim, not_before=self.now() + timedelta(seconds=90))
            case _:
                self.sql.call("heartbeat", **lease(claim), lease_seconds=600)
                self.held.append(claim)

    @rule(which=number, verb=st.sampled_from(["retry", "cancel"]))
    def by_id(self, which: int, verb: str) -> None:
        self.sql.call(verb, job_id=self.some_job(which))

    @rule(prune=st.booleans())
    def sweep(self, prune: bool) -> None:
        self.sql.call("reap")
        if prune:
            self.sql.call("prune", job_days=0, attempt_days=32)
            live = {row["id"] for row in self.sql.rows("select id from sluicegate.job")}
            self.jobs = [job for job in self.jobs if job in live]
            if not self.jobs:
                self.enqueue("a", 2, 2, None)

    # Policies

    @rule(queue=queues, change=changes)
    def policy(self, queue: str, change: tuple[str, Any]) -> None:
        verb, what = change
        # What was opened under a later clock cannot be told from what is to come.
        self.catch_up()
        if verb in {"move", "patch"}:
            shown = self.sql.call("budget_show", queue=queue)
            if "revision" not in shown:
                return
            if verb == "move":
                moved = [max(0, limit["max_claims_per_window"] + what) for limit in shown["limits"]]
                what = {
                    "limits": [
                        {**limit, "max_claims_per_window": most}
                        for limit, most in zip(shown["limits"], moved, strict=True)
                    ]
                }
            _refused(lambda: self.sql.call("patch_admission_policy", queue=queue, patch=what), "SG001")
            return
        calls: dict[str, Callable[[], object]] = {
            "set": lambda: self.sql.call("set_admission_policy", queue=queue, policy=what),
            "clear": lambda: self.sql.call("clear_admission_policy", queue=queue),
            "pause": lambda: self.sql.call(
                "pause_queue", queue=queue, until=what and self.now() + timedelta(seconds=what)
            ),
            "resume": lambda: self.sql.call("resume_queue", queue=queue),
            "reset": lambda: self.sql.call("reset_usage", queue=queue, period=what),
        }
        refused = _refused(calls[verb], "SG001", "SG002", "SG003")
        assert not (verb == "set" and refused)

    # Time

    def now(self) -> datetime:
        now = self.sql.one("select sluicegate.clock()")
        assert isinstance(now, datetime)
        return now

    def catch_up(self) -> None:
        if self.now() < self.latest:
            freeze_clock(self.sql.connection, self.latest)

    def move(self, by: timedelta) -> None:
        advance_clock(self.sql.connection, by)
        self.latest = max(self.latest, self.now())
        # An answer is kept for a day.
        self.asked = [asked for asked in self.asked if asked[2] > self.latest - timedelta(hours=23)]

    @rule(seconds=st.sampled_from([31, 1, 90, 61, 601, 3600, 86_400, 8 * 86_400]))
    def time_passes(self, seconds: int) -> None:
        self.move(timedelta(seconds=seconds))

    @rule(queue=queues, microseconds=st.sampled_from([-1, 0, 0, 1]))
    def until_it_opens(self, queue: str, microseconds: int) -> None:
        """To the instant that a closed queue has named, or right beside it."""
        opens = self.sql.call("budget_show", queue=queue).get("verdict", {}).get("next_eligible_at")
        if opens is not None:
            self.move(datetime.fromisoformat(opens) + timedelta(microseconds=microseconds) - self.now())

    @rule(seconds=st.sampled_from([60, 1, 100]))
    def clock_is_set_back(self, seconds: int) -> None:
        if not self.sql.one("select exists (select from sluicegate.policy where opening)"):
            self.move(timedelta(seconds=-seconds))

    # What always holds

    @invariant()
    def all_agree(self) -> None:
        if self.jobs:
            for queue in QUEUES:
                self.seen[check_rule(self.sql, queue)] += 1

    @invariant()
    def the_books_are_right(self) -> None:
        assert check_ledger(self.sql) == self.opened
        self.charges.check(self.sql)
        check_limits(self.sql)


def play(sql: Sql, examples: int, steps: int, *, fixed: bool) -> Counter[str]:
    """Run the machine on the database of ``sql``; AssertionError with the steps when something does not hold.

    ``fixed`` does the same every time and shows the first failure as it is; else each run looks elsewhere, and says how
    to repeat it. Answers how often a queue was found in which state.
    """
    seen: Counter[str] = Counter()
    machine = type("Played", (Admission,), {"sql": sql, "seen": seen})
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                derandomize=fixed,
                phases=[Phase.generate] if fixed else [Phase.generate, Phase.shrink],
                print_blob=True,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        restore_clock(sql.connection)
    return seen


@pytest.mark.slow
def test_a_queue_is_admitted_exactly_when_a_claim_takes_its_head_job(sql: Sql) -> None:
    seen = play(sql, rounds(15, 30), rounds(25, 30), fixed=not full())
    assert seen.keys() >= {"admitted", "empty", "paused", "window_exhausted", "in_flight_full"}


# A rule, a gate or a book that is off by one, and what the shipped text says instead.
BROKEN: dict[str, tuple[str, str, str]] = {
    "the verdict closes a window one too late": ("gate_windows", "u.used >= l.max_claims", "u.used > l.max_claims"),
    "the verdict closes a cap one too late": (
        "gate_in_flight",
        ">= v_policy.max_in_flight),",
        "> v_policy.max_in_flight),",
    ),
    "a lane admits one too many to a window": (
        "admit_fast",
        "forgiven[k] - v_lane.used[k]",
        "forgiven[k] - v_lane.used[k] + 1",
    ),
    "a lane admits one too many at once": ("admit_fast", "cap - v_flight;", "cap - v_flight + 1;"),
    "all lanes admit one too many at once": (
        "admit_slow",
        "sluicegate.flight(p_queue_id)",
        "sluicegate.flight(p_queue_id) + 1",
    ),
    "a batch is charged as one": ("admit_fast", "used[k] + v_taken + v_fresh", "used[k] + least(v_taken + v_fresh, 1)"),
    "a new window starts empty": ("seed_windows", "when l.lane > 0 then 0 else", "when l.lane >= 0 then 0 else"),
    "spent claims keep their slots": (
        "end_lapsed",
        "where j.state = 'claimed'",
        "where j.attempt < j.max_attempts and j.state = 'claimed'",
    ),
    "a pause is read only while it has an end": (
        "gate_pause",
        "coalesce(p.paused_until > p_now, true)",
        "p.paused_until > p_now",
    ),
}
TRIED = list(BROKEN) if full() else list(BROKEN)[:3]


@pytest.mark.slow
@pytest.mark.one_version
@pytest.mark.parametrize("fault", TRIED)
def test_the_machine_finds_a_rule_that_is_broken_on_purpose(sql: Sql, fault: str) -> None:
    function, shipped, broken = BROKEN[fault]
    sql.replace(function, (shipped, broken))
    with pytest.raises(AssertionError):
        play(sql, 500, 25, fixed=True)

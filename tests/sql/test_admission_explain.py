"""What explain and next say of a job that waits: its place, when it is expected, and the command that admits it now."""

import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluicegate.testing import freeze_clock
from tests.sql.budgets import ask, govern, window
from tests.sql.verbs import Json, Sql

NOON = datetime(2026, 6, 10, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 6, 11, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _noon(sql: Sql) -> None:
    freeze_clock(sql.connection, NOON)


def explain(sql: Sql, job_id: int, **options: Any) -> Json:
    answer: Json = sql.call("explain", job_id=job_id, **options)
    return answer


def expected(answer: Json) -> tuple[datetime | None, bool]:
    at = answer["expected_at"]
    return None if at is None else datetime.fromisoformat(at), answer["expected_exact"]


def upcoming(sql: Sql, **options: Any) -> list[tuple[int, datetime | None, bool]]:
    return [
        (job["id"], None if job["expected_at"] is None else datetime.fromisoformat(job["expected_at"]), job["exact"])
        for job in sql.call("next_jobs", **options)["jobs"]
    ]


def jobs(sql: Sql, number: int, queue: str = "q", **fields: Any) -> list[int]:
    return sql.enqueue_many([{"queue": queue, **fields}] * number)


def test_windows_are_played_forward_to_the_one_in_which_the_job_has_its_turn(sql: Sql) -> None:
    waiting = jobs(sql, 9)
    govern(sql, "q", window(3), window(2, "hour"))
    ask(sql)
    # One more this hour, one more today; then two an hour and three a day.
    want = [NOON, NOON + timedelta(hours=1), MIDNIGHT, MIDNIGHT, MIDNIGHT + timedelta(hours=1)]
    want += [MIDNIGHT + timedelta(days=1)] * 2 + [MIDNIGHT + timedelta(days=1, hours=1)]
    assert [expected(explain(sql, job)) for job in waiting[1:]] == [(at, True) for at in want]
    assert [explain(sql, job)["position"] for job in waiting[1:]] == list(range(8))
    assert upcoming(sql) == [(job, at, True) for job, at in zip(waiting[1:], want, strict=True)]


def test_lapsed_claims_go_first_and_are_counted_before_the_others(sql: Sql) -> None:
    early, late, dead = jobs(sql, 2) + jobs(sql, 1, max_attempts=1)
    sql.take("q", n=3)
    fresh = sql.enqueue("q", priority=-5)
    govern(sql, "q", window(4))
    freeze_clock(sql.connection, NOON + timedelta(minutes=1))
    sql.lapse(early, dead)
    freeze_clock(sql.connection, NOON + timedelta(minutes=2))
    sql.lapse(late)
    assert [explain(sql, job)["position"] for job in (early, late, fresh)] == [0, 1, 2]
    told = explain(sql, dead)
    assert (told["waits_for"], told["command"], told["expected_at"]) == ("end", None, None)
    assert [expected(explain(sql, job))[0] for job in (early, late, fresh)] == [
        NOON + timedelta(minutes=2),
        MIDNIGHT,
        MIDNIGHT,
    ]
    assert [job for job, _, _ in upcoming(sql)] == [early, late, fresh]
    assert [claim["job"]["id"] for claim in ask(sql, n=3)["claims"]] == [early]


def test_beyond_a_thousand_the_place_is_not_counted_and_the_time_a_hint(sql: Sql) -> None:
    waiting = jobs(sql, 1002)
    govern(sql, "q", window(10_000))
    for at, position, exact in ((1000, 1000, True), (1001, 1000, False)):
        told = explain(sql, waiting[at])
        assert (told["position"], told["position_exact"], told["expected_exact"]) == (position, exact, exact)
    govern(sql, "q", window(0))
    # Where nobody counted, no number would be the right one.
    assert explain(sql, waiting[1000])["command"] == "sluicegate queue budget set --per-day 1001 q"
    assert explain(sql, waiting[1001])["command"] is None


def test_a_full_cap_gives_a_hint_and_never_a_promise(sql: Sql) -> None:
    first, second, third = jobs(sql, 3)
    govern(sql, max_in_flight=1)
    # One place is free: the first may start, when the second may depends on it.
    assert expected(explain(sql, first)) == (NOON, True)
    assert explain(sql, first)["holders"] == []
    assert expected(explain(sql, second))[1] is False
    ask(sql)
    at, exact = expected(explain(sql, second))
    lease: datetime = sql.one("select lease_expires_at from sluicegate.job where id = %s", first)
    assert (at, exact) == (lease + timedelta(seconds=30), False)
    (holder,) = explain(sql, second)["holders"]
    assert (holder["job_id"], holder["worker"]) == (first, None)
    assert datetime.fromisoformat(holder["claimed_at"]) == NOON
    assert datetime.fromisoformat(holder["lease_expires_at"]) == lease
    assert [(job, exact) for job, _, exact in upcoming(sql)] == [(second, False), (third, False)]


def test_ten_of_many_holders_are_named_those_whose_lease_ends_first(sql: Sql) -> None:
    (*held, waiting) = jobs(sql, 13)
    for seconds in (3, 2, 1):
        sql.claim("q", n=4, lease_seconds=100 * seconds)
    govern(sql, max_in_flight=12)
    assert [holder["job_id"] for holder in explain(sql, waiting)["holders"]] == held[8:12] + held[4:8] + held[:2]
    govern(sql, "q", window(0), max_in_flight=20)
    assert explain(sql, waiting)["holders"] == [], "the cap is not what is in the way"


def test_a_pause_is_waited_for_and_the_windows_after_it_are_fresh(sql: Sql) -> None:
    first, second, third = jobs(sql, 3)
    govern(sql, "q", window(1))
    sql.call("pause_queue", queue="q", until=NOON + timedelta(hours=2))
    assert expected(explain(sql, first)) == (NOON + timedelta(hours=2), True)
    assert expected(explain(sql, second)) == (MIDNIGHT, True)
    sql.call("pause_queue", queue="q", until=MIDNIGHT + timedelta(hours=9))
    assert expected(explain(sql, first)) == (MIDNIGHT + timedelta(hours=9), True)
    assert expected(explain(sql, third)) == (MIDNIGHT + timedelta(days=2), True)
    sql.call("pause_queue", queue="q")
    assert expected(explain(sql, first)) == (None, False)
    assert upcoming(sql)[0] == (first, None, False)


@pytest.mark.parametrize("policy", [{"max_in_flight": 0}, {"limits": [window(0)]}], ids=["in flight", "window"])
def test_a_limit_of_nothing_has_no_end(sql: Sql, policy: Json) -> None:
    (job,) = jobs(sql, 1)
    sql.call("set_admission_policy", queue="q", policy=policy)
    sql.call("open_admission", queue="q")
    assert expected(explain(sql, job)) == (None, False)


def test_a_job_whose_time_has_not_come_is_expected_when_its_queue_is_open_then(sql: Sql) -> None:
    jobs(sql, 1)
    later = sql.enqueue("q", run_at=NOON + timedelta(hours=3))
    tomorrow = sql.enqueue("q", run_at=MIDNIGHT + timedelta(hours=3))
    free = sql.enqueue("free", run_at=NOON + timedelta(hours=3))
    govern(sql, "q", window(1))
    ask(sql)
    assert expected(explain(sql, later)) == (MIDNIGHT, False)
    assert expected(explain(sql, tomorrow)) == (MIDNIGHT + timedelta(hours=3), False)
    assert expected(explain(sql, free)) == (NOON + timedelta(hours=3), True)
    assert upcoming(sql) == [
        (free, NOON + timedelta(hours=3), True),
        (later, MIDNIGHT, False),
        (tomorrow, MIDNIGHT + timedelta(hours=3), False),
    ]


def test_a_job_of_a_queue_without_a_policy_is_expected_now(sql: Sql) -> None:
    (job,) = jobs(sql, 1)
    told = explain(sql, job)
    assert (expected(told), told["command"]) == ((NOON, True), None)


def obey(sql: Sql, command: str, scope: str = "endpoint:default") -> None:
    """Do in SQL what a command of the command line says; that it does so is tested there."""
    for one in command.split(" && "):
        words = shlex.split(one)
        assert words[:3] == ["sluicegate", "queue", "budget"]
        options = dict(zip(words[4:-1:2], words[5:-1:2], strict=True))
        queue = words[-1]
        whose = {name: options.pop(f"--{name}") for name in ("endpoint", "team") if f"--{name}" in options}
        assert [f"{kind}:{slug}" for kind, slug in whose.items()] == ([] if scope == "endpoint:default" else [scope])
        if words[3] == "resume":
            sql.call("resume_queue", queue=queue, scope=scope)
            continue
        limits = sql.call("budget_show", queue=queue, scope=scope)["limits"]
        patch: Json = {}
        if "--max-in-flight" in options:
            patch["max_in_flight"] = int(options.pop("--max-in-flight"))
        for option, number in options.items():
            period = option.removeprefix("--per-")
            (one_limit,) = [limit for limit in limits if limit["window"]["period"] == period]
            one_limit["max_claims_per_window"] = int(number)
            patch["limits"] = limits
        sql.call("patch_admission_policy", queue=queue, patch=patch, scope=scope)


POLICIES: dict[str, Json] = {
    "a window that is used up": {"limits": [window(1)]},
    "a window with room for those before it only": {"limits": [window(3)]},
    "two windows": {"limits": [window(1), window(2, "hour")]},
    "a cap": {"max_in_flight": 1},
    "a cap of nothing": {"max_in_flight": 0},
    "a window of nothing": {"limits": [window(0)]},
    "all at once": {"limits": [window(1), window(1, "hour")], "max_in_flight": 1, "paused": True},
    "nothing but a pause": {"paused": True},
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_command_admits_the_job_with_those_before_it_and_nothing_less_does(sql: Sql, policy: Json) -> None:
    waiting = jobs(sql, 5)
    sql.call("set_admission_policy", queue="q", policy={**policy, "paused": False} if len(policy) > 1 else policy)
    sql.call("open_admission", queue="q")
    if policy.get("paused") is None or len(policy) > 1:
        ask(sql)
    if policy.get("paused"):
        sql.call("pause_queue", queue="q")
    told = explain(sql, waiting[3])
    obey(sql, told["command"])
    assert explain(sql, waiting[3])["command"] is None
    taken = [claim["job"]["id"] for claim in ask(sql, n=told["position"] + 1)["claims"]]
    assert taken[-1] == waiting[3]
    if "limits" in policy or policy.get("max_in_flight") is not None:
        assert ask(sql)["deferred"], "not one more than was needed"


def test_a_shadow_limit_is_in_nobodys_way(sql: Sql) -> None:
    _, job = jobs(sql, 2)
    govern(sql, "q", window(1, mode="shadow"), max_in_flight=1, in_flight_mode="shadow")
    ask(sql)
    assert explain(sql, job)["command"] is None


def test_where_no_number_would_do_there_is_no_command(sql: Sql) -> None:
    _, job = jobs(sql, 2)
    govern(sql, "q", window(1), window(1, tz="Asia/Tokyo"))
    ask(sql)
    assert explain(sql, job)["command"] is None


def test_a_policy_that_cannot_be_read_is_the_doctors(sql: Sql) -> None:
    (job,) = jobs(sql, 1)
    govern(sql, "q", window(1))
    sql.do("delete from sluicegate.policy")
    told = explain(sql, job)
    assert (told["command"], expected(told)) == ("sluicegate doctor", (None, False))


@pytest.mark.parametrize("kind", ["endpoint", "team"])
def test_outside_the_default_scope_the_command_names_it(sql: Sql, kind: str) -> None:
    if kind == "team":
        sql.do("insert into sluicegate.owner (kind, slug) values ('team', 'acme')")
    else:
        sql.do(
            "insert into sluicegate.endpoint (owner_id, slug) select id, 'acme' from sluicegate.owner where slug = 'local'"
        )
    scope = f"{kind}:acme"
    first, second = (sql.enqueue("q", scope=scope) for _ in range(2))
    later = sql.enqueue("q", scope=scope, run_at=MIDNIGHT)
    sql.call("set_admission_policy", queue="q", policy={"max_in_flight": 1}, scope=scope)
    sql.call("open_admission", queue="q", scope=scope)
    sql.call("claim_job", job_id=first, scope=scope)
    command = explain(sql, second, scope=scope)["command"]
    assert command == f"sluicegate queue budget set --max-in-flight 2 --{kind} acme q"
    obey(sql, command, scope)
    retry = f"sluicegate retry {later} --scope {scope}"
    for _ in range(2):  # behind another job, and in a full queue
        assert explain(sql, later, scope=scope)["command"] == (
            f"sluicegate queue budget set --max-in-flight 3 --{kind} acme q && {retry}"
        )
        assert sql.call("claim_job", job_id=second, scope=scope)["status"] in ("ok", "conflict")
    sql.call("clear_admission_policy", queue="q", scope=scope)
    assert explain(sql, later, scope=scope)["command"] == retry


def test_in_a_closed_queue_retry_alone_would_not_start_what_waits_for_its_time(sql: Sql) -> None:
    first, _ = jobs(sql, 2)
    later = sql.enqueue("q", run_at=NOON + timedelta(minutes=1))
    govern(sql, "q", window(1))
    ask(sql)
    told = explain(sql, later)
    opening, retry = told["command"].split(" && ")
    assert (told["waits_for"], retry) == ("run_at", f"sluicegate retry {later}")
    obey(sql, opening)
    sql.call("retry", job_id=later)
    assert [claim["job"]["id"] for claim in ask(sql, n=3)["claims"]] == [first + 1, later]
    govern(sql, "shut", window(1), window(1, tz="Asia/Tokyo"))
    waits = sql.enqueue("shut", run_at=NOON + timedelta(minutes=1))
    assert explain(sql, waits)["command"] == f"sluicegate retry {waits}"
    sql.enqueue("shut")
    ask(sql, "shut")
    assert explain(sql, waits)["command"] is None, "no number would do, and retry would start nothing"


def test_the_reason_of_a_pause_is_told_while_it_lasts(sql: Sql) -> None:
    (job,) = jobs(sql, 1)
    sql.call("pause_queue", queue="q", reason="lunch")
    assert explain(sql, job)["paused_reason"] == "lunch"
    sql.call("resume_queue", queue="q")
    assert explain(sql, job)["paused_reason"] is None


@pytest.mark.parametrize(
    "queue", ["a;b", "$(x)", "it's", "-rf", "--help", "a&b", "*", "größe", "~", "a|b", '"', "`x`", "\\"]
)
def test_a_name_is_quoted_for_the_shell(sql: Sql, queue: str) -> None:
    (job,) = jobs(sql, 1, queue)
    sql.call("pause_queue", queue=queue)
    command = explain(sql, job)["command"]
    assert command.startswith("sluicegate queue budget resume ")
    heard = subprocess.run(["sh", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True)
    words = heard.stdout.splitlines()
    assert words[4:] == (["--", queue] if queue.startswith("-") else [queue])


def test_next_shows_the_earliest_of_many_scheduled_jobs(sql: Sql) -> None:
    for number in range(40):
        sql.enqueue("q", priority=number % 7, run_at=NOON + timedelta(hours=41 - number))
    shown = upcoming(sql, limit=5)
    assert [at for _, at, _ in shown] == [NOON + timedelta(hours=hours) for hours in range(2, 7)]


def test_a_window_without_a_zone_is_counted_in_its_owners_and_else_in_utc(sql: Sql) -> None:
    limit = {"max_claims_per_window": 1, "window": {"period": "day"}}
    sql.call("set_admission_policy", queue="q", policy={"limits": [limit]})
    assert sql.call("budget_show", queue="q")["limits"][0]["window"]["tz"] == "UTC"
    sql.do("update sluicegate.owner set tz = 'Asia/Tokyo' where slug = 'local'")
    sql.do("insert into sluicegate.owner (kind, slug, tz) values ('team', 'acme', 'Europe/Berlin')")
    for scope, zone in (("endpoint:default", "Asia/Tokyo"), ("team:acme", "Europe/Berlin")):
        sql.call("patch_admission_policy", queue="q", patch={"limits": [limit]}, scope=scope)
        assert sql.call("budget_show", queue="q", scope=scope)["limits"][0]["window"]["tz"] == zone
    sql.enqueue()
    sql.call("open_admission", queue="q")
    assert len(ask(sql)["claims"]) == 1
    (day,) = sql.call("rehearse", queue="q", policy={"limits": [limit]})["per_day"]
    assert day["claims"] == 1


def test_a_lapsed_claim_that_nobody_may_take_over_waits_for_its_end(sql: Sql) -> None:
    spent, cancelled, running = jobs(sql, 1, max_attempts=1) + jobs(sql, 2)
    sql.take("q", n=3)
    assert [explain(sql, job)["waits_for"] for job in (spent, cancelled, running)] == ["running"] * 3
    sql.call("cancel", job_id=cancelled)
    sql.lapse(spent, cancelled)
    assert [explain(sql, job)["waits_for"] for job in (spent, cancelled, running)] == ["end", "end", "running"]
    # As it says: the next claim of a governed queue, or reap, ends them.
    govern(sql, "q", window(9))
    sql.enqueue()
    ask(sql)
    assert [explain(sql, job)["waits_for"] for job in (spent, cancelled)] == ["ended", "ended"]
    assert (sql.state(spent), sql.state(cancelled)) == ("failed", "cancelled")

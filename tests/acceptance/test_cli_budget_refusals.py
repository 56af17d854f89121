"""Every command about budgets, refused: the field is named, in JSON and in words, and nothing has changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.acceptance.conftest import Cli
from tests.sql.verbs import Sql

ALL = (
    *("queue budget set", "queue budget show", "queue budget clear", "queue budget pause", "queue budget resume"),
    *("queue budget reset", "queue budget audit", "queue budget rehearse", "explain", "next", "admission"),
)
# What is refused, its exit status, its code, and the field.
REFUSED: list[tuple[str, int, str, str | None]] = [
    ("queue budget set nowhere/x --per-day 1", 2, "invalid_argument", "queue"),
    ("queue budget set reviews --per-day 1.5", 2, "invalid_argument", "max_claims_per_window"),
    ("queue budget set reviews --per-day 1000001", 2, "invalid_argument", "max_claims_per_window"),
    ("queue budget set reviews --per-hour ten", 2, "invalid_argument", "max_claims_per_window"),
    ("queue budget set reviews --per-day 1 --tz utc", 2, "invalid_argument", "window.tz"),
    ("queue budget set reviews --per-day 1 --tz UTC+8", 2, "invalid_argument", "window.tz"),
    ("queue budget set reviews --per-day 1 --tz posix/UTC", 2, "invalid_argument", "window.tz"),
    ("queue budget set reviews --per-day 1 --tz localtime", 2, "invalid_argument", "window.tz"),
    ("queue budget set reviews --per-day 1 --start 7:00", 2, "invalid_argument", "window.start"),
    ("queue budget set reviews --per-day 1 --start 24:00", 2, "invalid_argument", "window.start"),
    ("queue budget set reviews --per-month 1 --day 0", 2, "invalid_argument", "window.day"),
    ("queue budget set reviews --per-week 1 --weekday Mittwoch", 2, "invalid_argument", "window.weekday"),
    ("queue budget set reviews --max-in-flight -1", 2, "invalid_argument", "max_in_flight"),
    ("queue budget set reviews --max-in-flight many", 2, "invalid_argument", "max_in_flight"),
    ("queue budget set reviews --per-day 9 --revision -1", 2, "invalid_argument", "revision"),
    ("queue budget set reviews --per-day 9 --revision x", 2, "invalid_argument", "revision"),
    ("queue budget set reviews --per-day 9 --revision 7", 1, "conflict", None),
    ("queue budget set reviews --per-day 9 --endpoint nobody", 1, "not_found", None),
    ("queue budget set reviews --per-day 9 --endpoint UPPER", 2, "invalid_argument", "scope"),
    ("queue budget set reviews --per-day 9 --team crew --scope endpoint:default", 2, "invalid_argument", "scope"),
    ("queue budget set reviews", 2, "invalid_argument", "policy"),
    ("queue budget show nowhere", 1, "not_found", None),
    ("queue budget show a/b", 2, "invalid_argument", "queue"),
    ("queue budget clear free", 1, "not_found", None),
    ("queue budget clear nowhere", 1, "not_found", None),
    ("queue budget clear reviews --revision 7", 1, "conflict", None),
    ("queue budget pause reviews --until yesterday", 2, "invalid_argument", "paused_until"),
    ("queue budget pause reviews --until 2999-01-01T00:00:00", 2, "invalid_argument", "paused_until"),
    ("queue budget pause reviews --until 2001-01-01T00:00:00Z", 2, "invalid_argument", "paused_until"),
    ("queue budget resume reviews", 1, "conflict", None),
    ("queue budget resume nowhere", 1, "not_found", None),
    ("queue budget resume free", 1, "conflict", None),
    ("queue budget reset reviews --period year", 2, "invalid_argument", "period"),
    ("queue budget reset reviews --period week", 1, "not_found", None),
    ("queue budget reset free", 1, "not_found", None),
    ("queue budget reset nowhere", 1, "not_found", None),
    ("queue budget audit reviews --limit 0", 2, "invalid_argument", "limit"),
    ("queue budget audit reviews --limit 201", 2, "invalid_argument", "limit"),
    ("queue budget audit nowhere", 1, "not_found", None),
    ("queue budget rehearse reviews --per-day 9 --days 46", 2, "invalid_argument", "days"),
    ("queue budget rehearse reviews --per-day 9 --days 0", 2, "invalid_argument", "days"),
    ("queue budget rehearse reviews --per-day 9 --tz nowhere", 2, "invalid_argument", "window.tz"),
    ("queue budget rehearse nowhere --per-day 9", 1, "not_found", None),
    ("explain 999999", 1, "not_found", None),
    ("explain -1", 2, "invalid_argument", "job_id"),
    ("explain one", 2, "invalid_argument", "job_id"),
    ("next --limit 0", 2, "invalid_argument", "limit"),
    ("next --limit x", 2, "invalid_argument", "limit"),
    ("next --queue nowhere", 1, "not_found", None),
    ("next --queue a/b", 2, "invalid_argument", "queue"),
    ("next --scope endpoint:nobody", 1, "not_found", None),
    ("admission nowhere", 1, "not_found", None),
    ("admission a/b", 2, "invalid_argument", "queue"),
    ("admission --team nobody", 1, "not_found", None),
    ("queue budget shwo reviews", 2, "invalid_argument", "command"),
]
TABLES = (
    "policy",
    "policy_limit",
    "budget_window",
    "lane",
    "usage",
    "forgiven",
    "policy_audit",
    "queue",
    "job",
    "attempt",
)


@pytest.fixture
def direct(dsn: str) -> Iterator[Sql]:
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        yield Sql(connection)


@pytest.fixture
def stocked(direct: Sql) -> Sql:
    """Queue "reviews" with a budget a day and an hour, of which one is used; "free" without one."""
    windows = [{"max_claims_per_window": n, "window": {"period": p, "tz": "UTC"}} for n, p in ((9, "day"), (5, "hour"))]
    direct.call("set_admission_policy", queue="reviews", policy={"limits": windows})
    direct.call("open_admission", queue="reviews")
    direct.enqueue_many([{"queue": "reviews"}] * 3 + [{"queue": "free"}])
    assert direct.take("reviews")
    return direct


def everything(sql: Sql) -> dict[str, Any]:
    return {table: sql.rows(f"select t::text as r from sluicegate.{table} t order by 1") for table in TABLES}


@pytest.mark.slow
def test_what_is_refused_names_its_field_and_changes_nothing(cli: Cli, stocked: Sql) -> None:
    before = everything(stocked)
    for text, status, code, field in REFUSED:
        answer = cli(*text.split(), "--json", status=status)
        # Beside another limit a limit is named with its place.
        named = re.sub(r"^limits\[\d\]\.", "", answer.error.get("field", "")) or None
        assert (answer.error["code"], named) == (code, field), (text, answer.error)
        assert code != "invalid_argument" or answer.error["next_step"], text
        said = cli(*text.split(), status=status)
        assert said.out == "", text
        assert answer.error["message"] in said.err, (text, said.err)
    assert everything(stocked) == before


@pytest.mark.parametrize("length", [1_024, 1_025])
def test_a_reason_is_kept_up_to_its_length_and_refused_beyond(cli: Cli, stocked: Sql, length: int) -> None:
    reason, number = "x" * length, 0
    for command in ("set reviews --per-day 8", "pause reviews", "resume reviews", "reset reviews", "clear reviews"):
        answer = cli("queue", "budget", *command.split(), "--reason", reason, "--json", status=None)
        if length > 1_024:
            assert (answer.status, answer.error["code"], answer.error["field"]) == (2, "invalid_argument", "reason")
        else:
            assert answer.status == 0
            number += 1
            told = cli("queue", "budget", "audit", "reviews", "--limit", "1", "--json").json["audit"]
            assert [entry["reason"] for entry in told] == [reason]
    assert stocked.one("select count(*) from sluicegate.policy_audit") == 1 + number


def test_every_command_answers_in_json_and_in_words(cli: Cli, stocked: Sql) -> None:
    job = str(stocked.one("select max(id) from sluicegate.job where state = 'pending' and queue_id = 1"))
    arguments = {
        "queue budget set": ["reviews", "--per-day", "8"],
        "queue budget reset": ["reviews", "--period", "hour"],
        "queue budget rehearse": ["reviews", "--per-day", "1"],
        "explain": [job],
        "next": [],
        "admission": [],
    }
    # Clearing comes last.
    order = [command for command in ALL if command != "queue budget clear"] + ["queue budget clear"]
    for command in order:
        words = [*command.split(), *arguments.get(command, ["reviews"])]
        document = cli(*words, "--json")
        assert document.err == "", command
        assert isinstance(document.json, dict), command
        if command == "queue budget reset":
            stocked.take("reviews")
        if command in {"queue budget pause", "queue budget resume", "queue budget clear"}:
            continue
        said = cli(*words)
        assert said.out.strip(), command
        with pytest.raises(ValueError, match=r"Expecting|Extra"):
            assert said.json


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        ("delete from sluicegate.policy", None),
        ("update sluicegate.budget_window set tz = 'Mars/Olympus'", "update sluicegate.budget_window set tz = 'UTC'"),
        ("alter table sluicegate.policy rename to elsewhere", "alter table sluicegate.elsewhere rename to policy"),
    ],
    ids=["row missing", "zone unknown", "table missing"],
)
def test_a_budget_that_cannot_be_evaluated_is_told_everywhere_and_can_be_mended(
    cli: Cli, stocked: Sql, broken: str, mended: str | None
) -> None:
    job = str(stocked.one("select max(id) from sluicegate.job where state = 'pending' and queue_id = 1"))
    stocked.do(broken)
    refused = cli("claim", "reviews", status=1)
    assert (
        "reviews is deferred: its policy cannot be evaluated (admission_unavailable; policy unreadable)" in refused.err
    )
    assert cli("claim", "reviews", "--json", status=1).json["deferred"][0]["reason"] == "admission_unavailable"
    assert cli.refused("claim", "--job", job)["reason"] == "admission_unavailable"
    for command in (["queue", "budget", "show", "reviews"], ["admission"], ["admission", "reviews"], ["explain", job]):
        assert "its policy cannot be evaluated" in cli(*command).out, command
    assert cli("queue", "budget", "show", "reviews", "--json").json["refused"]["admission_unavailable"] >= 1
    (queue,) = cli("admission", "--json").json["queues"]
    assert (queue["status"], bool(queue["verdict"]["fault"])) == ("admission_unavailable", True)
    explained = cli("explain", job, "--json").json
    assert (explained["verdict"]["reason"], explained["command"]) == ("admission_unavailable", "sluicegate doctor")
    assert "deferred (admission_unavailable)" in cli("next", "--queue", "reviews").out
    checks = {check["name"]: check for check in cli("doctor", "--json", status=1).json["checks"]}
    assert checks["policies"]["status"] == "fail"
    assert "reviews of endpoint:default" in checks["policies"]["found"]
    assert "reviews of endpoint:default" in cli("doctor", status=1).out
    if mended is not None:
        stocked.do(mended)
    else:
        for verb in ("pause", "resume", "reset"):
            assert cli.refused("queue", "budget", verb, "reviews")["code"] == "conflict"
        cli("queue", "budget", "clear", "reviews")
        cli("queue", "budget", "set", "reviews", "--per-day", "9")
    checks = {check["name"]: check for check in cli("doctor", "--json", status=None).json["checks"]}
    assert checks["policies"]["status"] == "ok"
    assert cli("queue", "budget", "show", "reviews", "--json").json["status"] == "admitted"
    assert len(cli("claim", "reviews", "--json").json["claims"]) == 1

"""``queue budget …``, ``admission``, ``explain``, ``next``, and what ``claim`` says of a closed queue."""

import shlex
from datetime import datetime

import psycopg
import pytest

from sluicegate import SyncClient
from tests.acceptance.conftest import Cli


def enqueued(cli: Cli, number: int, queue: str = "reviews") -> list[int]:
    lines = "".join(f"{at}\n" for at in range(number))
    return [job["id"] for job in cli("enqueue", queue, "--from-lines", "-", "--json", stdin=lines).json["jobs"]]


def limits(document: dict[str, object]) -> dict[str, int]:
    found = document["limits"]
    assert isinstance(found, list)
    return {one["window"]["period"]: one["max_claims_per_window"] for one in found}


def test_set_reads_like_the_sentence_it_stands_for(cli: Cli) -> None:
    enqueued(cli, 3)
    cli("claim", "reviews", "-n", "2")
    told = cli(
        "queue", "budget", "set", "reviews", "--per-day", "100", "--per-hour", "20",
        "--tz", "America/Los_Angeles", "--max-in-flight", "4",
    ).out  # fmt: skip
    first, *rest = told.splitlines()
    assert first == (
        "reviews: at most 20 an hour from minute 00 America/Los_Angeles, "
        "at most 100 a day from 00:00 America/Los_Angeles, at most 4 at once."
    )
    assert all(line.startswith("  already used: ") for line in rest)
    for used in ("2 of 20 this hour", "2 of 100 this day", "2 of 4 in flight"):
        assert used in told


def test_a_first_policy_that_cannot_open_yet_is_told_with_whom_it_waits_for(cli: Cli, dsn: str) -> None:
    enqueued(cli, 2)
    with psycopg.connect(dsn, application_name="slow") as early:
        early.execute("""select sluicegate.claim('[{"queues": ["reviews"]}]')""")
        told = cli("queue", "budget", "set", "reviews", "--per-day", "5").out
        for out in (told, cli("queue", "budget", "show", "reviews").out, cli("admission").out):
            assert "not open yet: nothing starts until the claims have ended that began before" in out
            assert f"waits for pid {early.info.backend_pid} (slow, idle in transaction, in its transaction since" in out
        assert "now: not open yet" in cli("admission").out
    assert "already used: 1 of 5 this day" in cli("queue", "budget", "set", "reviews", "--per-day", "5").out
    assert "not open" not in cli("admission").out


def test_set_changes_what_is_named_and_keeps_the_rest(cli: Cli) -> None:
    def budget(*arguments: str) -> dict[str, object]:
        document: dict[str, object] = cli("queue", "budget", "set", "reviews", *arguments, "--json").json
        return document

    budget("--per-day", "100", "--tz", "Asia/Tokyo", "--start", "09:30", "--max-in-flight", "4")
    after = budget("--per-hour", "20")
    assert (limits(after), after["max_in_flight"]) == ({"hour": 20, "day": 100}, 4)
    assert [one["window"]["tz"] for one in after["limits"]] == ["Asia/Tokyo"] * 2  # type: ignore[attr-defined]
    raised = budget("--per-day", "200")
    (day,) = (one for one in raised["limits"] if one["window"]["period"] == "day")  # type: ignore[attr-defined]
    assert (day["max_claims_per_window"], day["window"]["start"]) == (200, "09:30")
    gone = budget("--per-hour", "none", "--max-in-flight", "none")
    assert (limits(gone), gone["max_in_flight"]) == ({"day": 200}, None)
    week = budget("--per-week", "7", "--weekday", "thu", "--per-month", "30", "--day", "15")
    windows = {one["window"]["period"]: one["window"] for one in week["limits"]}  # type: ignore[attr-defined]
    assert (windows["week"]["weekday"], windows["month"]["day"]) == ("Thu", 15)
    moved = budget("--tz", "UTC")
    assert {one["window"]["tz"] for one in moved["limits"]} == {"UTC"}  # type: ignore[attr-defined]
    assert limits(moved) == {"day": 200, "week": 7, "month": 30}


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--per-day", "x"], "max_claims_per_window"),
        (["--per-day", "-1"], "max_claims_per_window"),
        (["--per-day", "1", "--tz", "Mars/Olympus"], "window.tz"),
        (["--per-day", "1", "--start", "25:00"], "window.start"),
        (["--per-hour", "1", "--start", "09:00"], "window.start"),
        (["--start", "09:00"], "window.start"),
        (["--tz", "UTC"], "window.tz"),
        (["--per-week", "1", "--weekday", "Someday"], "window.weekday"),
        (["--per-day", "1", "--weekday", "Mon"], "window.weekday"),
        (["--per-month", "1", "--day", "29"], "window.day"),
        (["--max-in-flight", "10001"], "max_in_flight"),
        (["--max-in-flight", "none"], "policy"),
        (["--endpoint", "a", "--team", "b", "--per-day", "1"], "scope"),
        (["--shadow"], "mode"),
        (["--per-day", "1", "--shadow", "--enforce"], "mode"),
        ([], "policy"),
    ],
)
def test_a_malformed_budget_is_refused_by_its_field(cli: Cli, arguments: list[str], field: str) -> None:
    error = cli("queue", "budget", "set", "reviews", *arguments, "--json", status=2).error
    assert (error["code"], error["field"]) == ("invalid_argument", field)
    assert error["next_step"]
    if arguments[1:] == ["none"]:
        assert error["next_step"] == "To take the policy away: sluicegate queue budget clear reviews"
    assert cli("admission", "--json").json["queues"] == []


def test_an_option_alone_is_judged_by_the_windows_there_are(cli: Cli) -> None:
    first = cli("queue", "budget", "set", "reviews", "--per-hour", "9", "--json").json
    assert (first["new_queue"], first["pending"]) == (True, 0)
    for option, value in (
        ("--start", "25:00"),
        ("--start", "09:00"),
        ("--weekday", "Mon"),
        ("--day", "3"),
        ("--tz", "Mars"),
    ):
        error = cli("queue", "budget", "set", "reviews", option, value, "--json", status=2).error
        assert error["field"] == f"window.{option[2:]}"
    assert cli("queue", "budget", "show", "reviews", "--json").json["revision"] == first["revision"]
    told = cli("queue", "budget", "set", "reviews", "--tz", "Asia/Tokyo").out
    assert "the zone Asia/Tokyo now holds for every limit it fits (per hour)" in told
    assert "is new" not in told
    assert "queue typo is new" in cli("queue", "budget", "pause", "typo").out


def test_messages_speak_of_options(cli: Cli) -> None:
    wrong = [
        (("queue", "budget", "set", "q", "--per-hour", "x"), "--per-hour is 'x'"),
        (("queue", "budget", "set", "q", "--per-hour", "-1"), "--per-hour is -1"),
        (("queue", "budget", "pause", "q", "--until", "2999-01-01T00:00:00"), "--until is 2999-01-01T00:00:00"),
        (("claim", "q", "--lease", "0"), "--lease is 0"),
        (("job", "seven"), "ID is 'seven'"),
    ]
    for arguments, said in wrong:
        told = cli(*arguments, status=2).err
        assert said in told, arguments
        assert not any(
            word in told for word in ("paused_until", "max_claims", "limits[", "lease_seconds", "job_id", "datetime")
        )


def test_a_limit_of_0_is_named_where_it_closes_and_is_no_pause_that_resume_ends(cli: Cli) -> None:
    enqueued(cli, 1)
    cli("queue", "budget", "set", "reviews", "--per-hour", "0")
    assert "now: closed, its limit is 0 an hour (paused), until" in cli("queue", "budget", "show", "reviews").out
    assert "its limit is 0 an hour (paused;" in cli("claim", "reviews", status=1).err
    error = cli.refused("queue", "budget", "resume", "reviews")
    assert (error["code"], error["next_step"].startswith("Its limit is 0 an hour, which no resume ends: ")) == (
        "conflict", True,
    )  # fmt: skip
    cli("queue", "budget", "pause", "reviews", "--reason", "down")
    assert "now: closed, paused, until" in cli("queue", "budget", "show", "reviews").out
    (job,) = cli("jobs", "--json").json["jobs"]
    assert "  closed    paused, until it is opened (down)\n" in cli("explain", str(job["id"])).out
    cli("queue", "budget", "set", "reviews", "--per-hour", "none")
    cli("queue", "budget", "resume", "reviews")
    error = cli.refused("queue", "budget", "resume", "reviews")
    assert error["next_step"] == "There is nothing to resume."


def test_a_reset_tells_what_it_forgave_and_show_keeps_it(cli: Cli) -> None:
    enqueued(cli, 3)
    cli("queue", "budget", "set", "reviews", "--per-day", "2", "--tz", "UTC")
    cli("claim", "reviews", "-n", "2")
    error = cli.refused("queue", "budget", "reset", "reviews", "--period", "week")
    assert (error["code"], "no limit per week" in error["message"]) == ("not_found", True)
    answer = cli("queue", "budget", "reset", "reviews", "--json").json
    assert [(one["period"], one["amount"]) for one in answer["forgiven"]] == [("day", 2)]
    assert answer["pending"] == 1
    cli("claim", "reviews")
    assert "forgiven: 1 of this day (UTC)" in cli("queue", "budget", "reset", "reviews").out
    shown = cli("queue", "budget", "show", "reviews", "--json").json
    assert [(one["period"], one["amount"]) for one in shown["forgiven"]] == [("day", 3)]
    assert (shown["pending"], shown["pending_exact"]) == (0, True)
    assert "forgiven: 3 of this day (UTC)" in cli("queue", "budget", "show", "reviews").out


def test_more_is_announced_only_where_there_is_more(cli: Cli) -> None:
    enqueued(cli, 2)
    assert "Older ones" in cli("jobs", "--limit", "1").out
    assert "Older ones" not in cli("jobs", "--limit", "2").out
    first = cli("next", "--limit", "1", "--json").json
    assert (len(first["jobs"]), first["more"]) == (1, True)
    assert "There are more" in cli("next", "--limit", "1").out
    assert "more" not in cli("next", "--limit", "2").out
    assert cli("next", "--limit", "0", "--json", status=2).error["field"] == "limit"


def test_limits_that_only_count_say_what_they_would_have_refused(cli: Cli) -> None:
    def budget(*arguments: str) -> tuple[dict[str, str], str]:
        found = cli("queue", "budget", "set", "reviews", *arguments, "--json").json
        return {one["window"]["period"]: one["mode"] for one in found["limits"]}, found["in_flight_mode"]

    enqueued(cli, 6)
    assert budget("--per-day", "5", "--max-in-flight", "5") == ({"day": "enforce"}, "enforce")
    assert budget("--per-hour", "2", "--shadow") == ({"hour": "shadow", "day": "enforce"}, "enforce")
    assert budget("--max-in-flight", "1", "--shadow") == ({"hour": "shadow", "day": "enforce"}, "shadow")
    assert budget("--per-hour", "1", "--max-in-flight", "2") == ({"hour": "shadow", "day": "enforce"}, "shadow")
    assert len(cli("claim", "reviews", "-n", "6", "--json").json["claims"]) == 5
    shadow = cli("queue", "budget", "show", "reviews", "--json").json["shadow"]
    assert [(one["gate"], one["period"], one["refused"]) for one in shadow] == [
        ("window", "hour", 4),
        ("in_flight", None, 3),
    ]
    told = cli("queue", "budget", "show", "reviews").out
    assert "at most 1 an hour from minute 00 UTC (counted only)" in told
    assert "already used: 5 of 1 this hour, counted only" in told
    assert "would have refused: 4 of this hour, 0 in the windows before since " in told
    assert "would have refused: 3 since " in told
    assert budget("--enforce") == ({"hour": "enforce", "day": "enforce"}, "enforce")
    assert budget("--shadow") == ({"hour": "shadow", "day": "shadow"}, "shadow")
    assert budget("--max-in-flight", "none") == ({"hour": "shadow", "day": "shadow"}, "enforce")
    assert budget("--per-day", "5", "--enforce") == ({"hour": "shadow", "day": "enforce"}, "enforce")


def test_a_closed_queue_is_told_with_its_reason_and_time(cli: Cli) -> None:
    _, second, third = enqueued(cli, 3)
    cli("queue", "budget", "set", "reviews", "--per-day", "1")
    assert len(cli("claim", "reviews", "-n", "3", "--json").json["claims"]) == 1
    answer = cli("claim", "reviews", "--json", status=1).json
    assert answer["claims"] == []
    (entry,) = answer["deferred"]
    assert set(entry) == {"queue", "reason", "pending", "pending_exact", "next_eligible_at", "exact", "all"}
    assert (entry["queue"], entry["reason"], entry["pending"], entry["exact"]) == (
        "reviews", "window_exhausted", 2, True,
    )  # fmt: skip
    assert entry["all"][0]["limit"] == 1
    told = cli("claim", "reviews", status=1)
    assert told.out == ""
    assert "reviews is deferred: its budget is used up (window_exhausted; 1 of 1 this day), until " in told.err
    error = cli.refused("claim", "--job", str(second))
    assert (error["code"], error["queue"], error["reason"]) == ("deferred", "reviews", "window_exhausted")
    assert datetime.fromisoformat(error["next_eligible_at"]) == datetime.fromisoformat(entry["next_eligible_at"])
    explained = cli("explain", str(third), "--json").json
    assert (explained["waits_for"], explained["verdict"]["reason"], explained["position"]) == (
        "admission", "window_exhausted", 1,
    )  # fmt: skip
    assert "deferred, its budget is used up, until " in cli("explain", str(third)).out
    assert cli("jobs").out.count("pending (window_exhausted)") == 2
    status = {name: explained["verdict"][name] for name in ("state", "reason", "next_eligible_at", "exact")}
    listed = cli("jobs", "--queue", "reviews", "--json").json["jobs"]
    assert [job["admission"] for job in listed] == [status, status, None]
    assert cli("job", str(third), "--json").json["job"]["admission"] == status
    assert "admission  closed, its budget is used up (window_exhausted), until " in cli("job", str(second)).out
    rows = cli("next", "--queue", "reviews", "--json").json["jobs"]
    assert [(row["id"], row["status"]) for row in rows] == [(second, "deferred"), (third, "deferred")]
    assert "deferred (window_exhausted)" in cli("next").out


def test_explain_says_how_a_lapsed_claim_without_attempts_ends(cli: Cli, dsn: str) -> None:
    first, second = enqueued(cli, 2)
    cli("claim", "reviews", "-n", "2")
    cli("cancel", str(second))
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "update sluicegate.job set max_attempts = attempt, lease_expires_at = sluicegate.clock() - interval '1 minute'"
        )
    for job, why, end in (
        (first, "no attempt is left", "a dead letter"),
        (second, "it is to be cancelled", "cancelled"),
    ):
        said = cli("explain", str(job)).out
        assert f" and {why}; the next claim while its queue is open, or reap, makes it {end}." in said
        assert "works on it" not in said


def test_the_command_that_explain_names_admits_the_job(cli: Cli) -> None:
    _, second = enqueued(cli, 2)
    cli("queue", "budget", "set", "reviews", "--per-day", "1", "--max-in-flight", "1")
    cli("claim", "reviews")
    explained = cli("explain", str(second), "--json").json
    assert f"  held by   job {explained['holders'][0]['job_id']}, " in cli("explain", str(second)).out
    command = explained["command"].split()
    assert command[0] == "sluicegate"
    cli(*command[1:])
    assert cli("claim", "--job", str(second), "--json").json["job"]["id"] == second


def test_outside_the_default_scope_the_command_names_the_owner_and_works_as_it_stands(cli: Cli, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("insert into sluicegate.owner (kind, slug) values ('team', 'acme')")
    scope = ("--scope", "team:acme")
    first, second = (cli("enqueue", "it's", "1", *scope, "--json").json["id"] for _ in range(2))
    cli("queue", "budget", "set", "it's", "--per-day", "1", "--max-in-flight", "1", "--team", "acme")
    cli("claim", "--job", str(first), *scope)
    cli("queue", "budget", "pause", "it's", "--team", "acme")
    command = cli("explain", str(second), *scope, "--json").json["command"]
    assert command.count("--team acme") == 2
    assert f"  now       {command}\n" in cli("explain", str(second), *scope).out
    for one in command.split(" && "):
        cli(*shlex.split(one)[1:])
    assert cli("claim", "--job", str(second), *scope, "--json").json["job"]["id"] == second


def test_windows_are_counted_in_the_zone_of_the_owner_unless_another_is_named(cli: Cli, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("update sluicegate.owner set tz = 'Asia/Tokyo' where slug = 'local'")
    assert "at most 5 a day from 00:00 Asia/Tokyo." in cli("queue", "budget", "set", "a", "--per-day", "5").out
    told = cli("queue", "budget", "set", "b", "--per-day", "5", "--tz", "Europe/Berlin").out
    assert "at most 5 a day from 00:00 Europe/Berlin." in told
    assert "at most 2 an hour from minute 00 Europe/Berlin" in cli("queue", "budget", "set", "b", "--per-hour", "2").out


def test_two_limits_of_one_period_are_not_made_one_by_accident(cli: Cli, dsn: str) -> None:
    limits = [{"max_claims_per_window": 5, "window": {"period": "day", "tz": tz}} for tz in ("UTC", "Asia/Tokyo")]
    with SyncClient(dsn) as client:
        client.set_policy("reviews", {"limits": limits})
    error = cli("queue", "budget", "set", "reviews", "--per-day", "9", "--json", status=2).error
    assert (error["field"], "2 limits a day" in error["message"]) == ("limits", True)
    assert len(cli("queue", "budget", "set", "reviews", "--per-hour", "9", "--json").json["limits"]) == 3
    assert len(cli("queue", "budget", "set", "reviews", "--per-day", "none", "--json").json["limits"]) == 1


def test_show_says_what_is_left_and_what_waits(cli: Cli) -> None:
    enqueued(cli, 3)
    cli("queue", "budget", "set", "reviews", "--per-day", "2", "--max-in-flight", "1")
    (claim,) = cli("claim", "reviews", "--json").json["claims"]
    assert (claim["admission"]["used"], claim["admission"]["remaining"]) == (1, 1)
    shown = cli("queue", "budget", "show", "reviews", "--json").json
    assert (shown["status"], shown["backlog"]["pending"], shown["scope"]) == ("in_flight_full", 2, "endpoint:default")
    told = cli("queue", "budget", "show", "reviews").out
    assert "already used: 1 of 2 this day" in told
    assert "already used: 1 of 1 in flight, closed" in told
    assert "charged for retries: 0" in told
    (queue,) = cli("admission", "--json").json["queues"]
    assert (queue["queue"], queue["status"]) == ("reviews", "in_flight_full")
    assert "now: closed, as many run as may run at once (in_flight_full)" in cli("admission", "reviews").out
    assert cli.refused("queue", "budget", "show", "nowhere")["code"] == "not_found"


def test_pause_resume_reset_clear_and_the_audit_of_it_all(cli: Cli) -> None:
    enqueued(cli, 3)
    cli("queue", "budget", "set", "reviews", "--per-day", "1", "--reason", "a quota")
    cli("claim", "reviews")
    paused = cli("queue", "budget", "pause", "reviews", "--until", "2999-01-01T00:00:00Z", "--reason", "down").out
    assert "paused until 2999" in paused
    assert cli("claim", "reviews", "--json", status=1).json["deferred"][0]["reason"] == "paused"
    cli("queue", "budget", "resume", "reviews")
    assert cli.refused("queue", "budget", "resume", "reviews")["code"] == "conflict"
    assert "already used: 0 of 1 this day" in cli("queue", "budget", "reset", "reviews", "--reason", "refunded").out
    assert len(cli("claim", "reviews", "--json").json["claims"]) == 1
    assert cli("queue", "budget", "clear", "reviews").out == (
        "reviews has no policy: as much may start as is asked for.\n"
    )
    entries = cli("queue", "budget", "audit", "reviews", "--json").json["audit"]
    assert [entry["verb"] for entry in entries] == ["clear", "reset", "resume", "pause", "set"]
    assert (entries[-1]["reason"], entries[-1]["before"]) == ("a quota", None)
    assert "set  by " in cli("queue", "budget", "audit", "reviews").out


def test_a_revision_guards_against_a_second_editor(cli: Cli) -> None:
    first = cli("queue", "budget", "set", "reviews", "--per-day", "1", "--revision", "0", "--json").json
    cli("queue", "budget", "set", "reviews", "--per-day", "2")
    error = cli.refused("queue", "budget", "set", "reviews", "--per-day", "3", "--revision", str(first["revision"]))
    assert error["code"] == "conflict"
    assert limits(cli("queue", "budget", "show", "reviews", "--json").json) == {"day": 2}


def test_rehearse_tells_what_a_budget_would_have_done(cli: Cli) -> None:
    enqueued(cli, 4)
    cli("claim", "reviews", "-n", "4")
    found = cli("queue", "budget", "rehearse", "reviews", "--per-month", "3", "--json").json
    assert (found["claims"], sum(day["admitted"] for day in found["per_day"])) == (4, 3)
    assert sum(day["still_deferred"] for day in found["per_day"]) == 1
    assert "STILL WAITING" in cli("queue", "budget", "rehearse", "reviews", "--per-month", "3").out
    assert cli("admission", "--json").json["queues"] == []


def test_options_may_stand_before_the_words_of_a_command(cli: Cli) -> None:
    cli("--json", "queue", "budget", "set", "reviews", "--max-in-flight", "0")
    assert cli("--json", "queue", "budget", "show", "reviews").json["status"] == "paused"
    error = cli("--json", "queue", "budget", "shwo", "reviews", status=2).error
    assert "queue budget show" in error["next_step"]
    assert cli("queue", "--json", status=2).error["field"] == "command"


def test_a_queue_of_another_scope_is_named_by_its_owner(cli: Cli) -> None:
    cli("queue", "budget", "set", "reviews", "--max-in-flight", "1", "--endpoint", "default")
    assert cli("queue", "budget", "show", "reviews", "--scope", "endpoint:default", "--json").json["max_in_flight"] == 1
    assert cli.refused("queue", "budget", "show", "reviews", "--endpoint", "nobody")["code"] == "not_found"
    assert cli.refused("queue", "budget", "show", "reviews", "--team", "nobody")["code"] == "not_found"


def test_exec_ends_when_only_deferred_work_is_left(cli: Cli) -> None:
    enqueued(cli, 3)
    cli("queue", "budget", "set", "reviews", "--per-month", "2")
    out = cli("exec", "reviews", "--drain", "--", "true").out
    assert "reviews is deferred: its budget is used up (window_exhausted; 2 of 2 this month)" in out
    assert "2 attempts in " in out
    events = [line for line in cli("exec", "reviews", "--drain", "--json", "--", "true").out.splitlines() if line]
    assert '"event": "deferred"' in events[0]

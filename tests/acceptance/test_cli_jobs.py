"""Putting jobs in, looking at them, changing them: ``enqueue``, ``jobs``, ``job``, ``retry``, ``cancel``."""

import json
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sluicegate.testing import freeze_clock
from tests.acceptance.conftest import Cli


def test_a_job_is_enqueued_with_everything_it_can_have(cli: Cli) -> None:
    parent = cli("enqueue", "plans", "null", "--json").json["id"]
    made = cli(
        *("enqueue", "reviews", '{"pr": 17, "text": "grüße\\n"}', "--kind", "review-pr", "--title", "Review 17"),
        *("--tag", "ci", "--tag", "night", "--priority", "-5", "--run-at", "2999-01-31T09:30:00+01:00"),
        *("--dedup-key", "pr-17", "--parent", str(parent), "--max-attempts", "3", "--backoff-base", "0.5", "--json"),
    ).json
    assert made == {"id": made["id"], "created": True, "state": "scheduled", "queue": "reviews"}
    job = cli("job", str(made["id"]), "--json").json["job"]
    wanted = {
        "payload": {"pr": 17, "text": "grüße\n"},
        "kind": "review-pr",
        "title": "Review 17",
        "tags": ["ci", "night"],
        "priority": -5,
        "run_at": "2999-01-31T08:30:00+00:00",
        "dedup_key": "pr-17",
        "parent_id": parent,
        "max_attempts": 3,
        "backoff": {"base_seconds": 0.5},
    }
    assert {name: job[name] for name in wanted} == wanted


def test_a_payload_can_come_from_standard_input_or_be_left_out(cli: Cli) -> None:
    read = cli("enqueue", "reviews", "-", "--json", stdin='["a", 1.5, null]\n').json["id"]
    absent = cli("enqueue", "reviews", "--json").json["id"]
    number = cli("enqueue", "reviews", "-7", "--json").json["id"]
    payloads = [cli("job", str(job), "--json").json["job"]["payload"] for job in (read, absent, number)]
    assert payloads == [["a", 1.5, None], None, -7]


def test_a_live_dedup_key_answers_the_job_that_has_it(cli: Cli) -> None:
    first = cli("enqueue", "reviews", "1", "--dedup-key", "k", "--json").json
    second = cli("enqueue", "other", "2", "--dedup-key", "k", "--json").json
    assert second == {**first, "created": False}
    assert "has this dedup key already" in cli("enqueue", "reviews", "3", "--dedup-key", "k").out


def test_a_repeated_request_id_adds_nothing_and_another_body_under_it_is_a_conflict(cli: Cli) -> None:
    first = cli("enqueue", "reviews", "1", "--request-id", "r", "--json").json
    assert cli("enqueue", "reviews", "1", "--request-id", "r", "--json").json == first
    assert cli.refused("enqueue", "reviews", "2", "--request-id", "r")["code"] == "conflict"
    assert len(cli("jobs", "--json").json["jobs"]) == 1


def test_a_delay_is_counted_by_the_clock_of_the_database(cli: Cli, dsn: str) -> None:
    freeze_clock(dsn, datetime(2031, 5, 1, 12, 0, tzinfo=UTC))
    job = cli("enqueue", "reviews", "1", "--delay", "90", "--json").json
    assert job["state"] == "scheduled"
    assert cli("job", str(job["id"]), "--json").json["job"]["run_at"] == "2031-05-01T12:01:30+00:00"


def test_jobs_are_filtered_and_paged_newest_first(cli: Cli) -> None:
    cli("enqueue", "reviews", "--from-lines", "-", "--kind", "review", stdin="a\nb\nc\n")
    cli("enqueue", "mail", "1")
    cli("cancel", "2")
    queue = ("jobs", "--queue", "reviews", "--json")
    assert [job["id"] for job in cli(*queue).json["jobs"]] == [3, 2, 1]
    assert [job["id"] for job in cli(*queue, "--state", "cancelled").json["jobs"]] == [2]
    assert [job["id"] for job in cli("jobs", "--kind", "review", "--state", "pending", "--json").json["jobs"]] == [3, 1]
    page = cli(*queue, "--limit", "2").json
    assert [job["id"] for job in page["jobs"]] == [3, 2]
    assert [job["id"] for job in cli(*queue, "--before", str(page["next_before_id"])).json["jobs"]] == [1]
    assert "Older ones: --before 2" in cli("jobs", "--queue", "reviews", "--limit", "2").out


def test_a_list_for_people_has_a_line_a_job_and_obeys_no_control_character(cli: Cli) -> None:
    cli("enqueue", "reviews", "1", "--title", "\x1b[2Jgone\x07")
    cli("enqueue", "reviews", "1")
    lines = cli("jobs").out.splitlines()
    assert lines[0].split() == ["ID", "QUEUE", "STATE", "PRIO", "ATTEMPT", "KIND", "WHEN", "ABOUT"]
    assert len(lines) == 3
    assert "\\u001b[2Jgone\\u0007" in lines[2]
    assert "There are no such jobs." in cli("jobs", "--state", "failed").out


def test_the_time_in_a_list_is_the_one_that_matters_in_the_jobs_state(
    cli: Cli, claimed: Callable[..., Any], dsn: str
) -> None:
    def shown() -> str:
        return cli("jobs", env={"TZ": "UTC"}).out

    freeze_clock(dsn, datetime(2031, 5, 1, 12, 0, tzinfo=UTC))
    claim = claimed()
    token = {"SLUICEGATE_LEASE_TOKEN": claim["lease_token"]}
    assert "2031-05-01 12:00" in shown()
    freeze_clock(dsn, datetime(2031, 5, 1, 12, 1, tzinfo=UTC))
    cli("fail", str(claim["job"]["id"]), "--retry-in", "7200", env=token)
    assert "2031-05-01 14:01" in shown()
    freeze_clock(dsn, datetime(2031, 5, 1, 15, 0, tzinfo=UTC))
    assert "2031-05-01 14:01" in shown()
    claim = cli("claim", "reviews", "--json").json["claims"][0]
    assert "2031-05-01 15:00" in shown()
    freeze_clock(dsn, datetime(2031, 5, 1, 15, 2, tzinfo=UTC))
    cli("complete", str(claim["job"]["id"]), env={"SLUICEGATE_LEASE_TOKEN": claim["lease_token"]})
    assert "2031-05-01 15:02" in shown()


def test_watching_writes_a_line_for_every_job_that_is_new_or_has_changed(cli: Cli) -> None:
    cli("enqueue", "reviews", "1")
    watch = cli.start("jobs", "--watch", "--json", "--interval", "0.1")
    assert watch.stdout is not None
    seen = [json.loads(watch.stdout.readline())]
    cli("enqueue", "reviews", "2")
    seen.append(json.loads(watch.stdout.readline()))
    cli("cancel", "1")
    seen.append(json.loads(watch.stdout.readline()))
    assert [(job["id"], job["state"]) for job in seen] == [(1, "pending"), (2, "pending"), (1, "cancelled")]
    assert cli.stop(watch, signal.SIGINT).status == 130


def test_a_job_is_shown_whole_with_its_attempts(cli: Cli, claimed: Callable[..., Any]) -> None:
    claim = claimed()
    job, token = str(claim["job"]["id"]), {"SLUICEGATE_LEASE_TOKEN": claim["lease_token"]}
    cli("fail", job, "--error", "out of paper", "--summary", "printer", "--retry-in", "0", env=token)
    claim = cli("claim", "--job", job, "--worker", "ada", "--json").json
    token = {"SLUICEGATE_LEASE_TOKEN": claim["lease_token"]}
    cli("complete", job, "--result", '{"pages": 3}', env=token)

    found = cli("job", job, "--json").json
    assert found["job"]["state"] == "done"
    assert found["job"]["result"] == {"pages": 3}
    assert [(attempt["seq"], attempt["outcome"]) for attempt in found["attempts"]] == [(2, "completed"), (1, "failed")]
    assert found["attempts"][1]["error"] == "out of paper"
    assert len(cli("job", job, "--attempts", "1", "--json").json["attempts"]) == 1
    shown = cli("job", job).out
    for text in (f"job {job} of reviews", "done", '{"pages": 3}', "by ada", "out of paper", "printer"):
        assert text in shown
    assert claim["lease_token"] not in shown


def test_a_dead_letter_is_retried_now_and_a_taken_dedup_key_is_named(cli: Cli, claimed: Callable[..., Any]) -> None:
    claim = claimed("reviews", "1", "--dedup-key", "k")
    job = str(claim["job"]["id"])
    failed = cli("fail", job, "--no-retry", "--json", env={"SLUICEGATE_LEASE_TOKEN": claim["lease_token"]}).json
    assert (failed["state"], failed["dead_letter"]) == ("failed", True)
    newer = cli("enqueue", "reviews", "2", "--dedup-key", "k", "--json").json["id"]
    refusal = cli.refused("retry", job)
    assert (refusal["code"], refusal["conflicting_job_id"]) == ("conflict", newer)
    cli("cancel", str(newer))
    retried = cli("retry", job, "--json").json
    assert (retried["job_id"], retried["state"]) == (int(job), "pending")
    assert cli("job", job, "--json").json["job"]["attempt"] == 0


def test_a_cancelled_job_ends_at_once_or_when_its_holder_hears_of_it(cli: Cli, claimed: Callable[..., Any]) -> None:
    waiting = cli("enqueue", "later", "1", "--json").json["id"]
    cancelled = cli("cancel", str(waiting), "--reason", "merged", "--json").json
    assert (cancelled["job_id"], cancelled["state"]) == (waiting, "cancelled")
    claim = claimed()
    job, token = str(claim["job"]["id"]), {"SLUICEGATE_LEASE_TOKEN": claim["lease_token"]}
    assert "told at the next heartbeat" in cli("cancel", job).out
    assert cli("heartbeat", job, "--json", env=token).json["cancelled"] is True
    assert cli("release", job, "--json", env=token).json["state"] == "cancelled"
    assert cli.refused("retry", "999")["code"] == "not_found"
    done = claimed()
    cli("complete", str(done["job"]["id"]), env={"SLUICEGATE_LEASE_TOKEN": done["lease_token"]})
    assert cli.refused("cancel", str(done["job"]["id"]))["state"] == "done"


def test_a_job_that_waits_for_its_time_in_a_closed_queue_is_told_both_and_what_admits_it(cli: Cli) -> None:
    cli("enqueue", "reviews", "1")
    later = str(cli("enqueue", "reviews", "--run-at", "2999-01-01T00:00:00Z", "--json").json["id"])
    assert f"  now       sluicegate retry {later}\n" in cli("explain", later).out
    cli("queue", "budget", "set", "reviews", "--per-day", "1")
    cli("claim", "reviews")
    told = cli("explain", later).out
    assert "it waits for its time, 2" in told
    assert "; its queue is closed now, its budget is used up, until " in told
    assert "  closed    1 of 1 this day, until " in told
    assert f"  now       sluicegate queue budget set --per-day 2 reviews && sluicegate retry {later}\n" in told

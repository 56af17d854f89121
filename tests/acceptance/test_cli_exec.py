"""``sluicegate exec``: a command for each job."""

import json
import os
import signal
from datetime import datetime
from typing import Any

from tests.acceptance.conftest import PROGRAM, Answer, Cli
from tests.support.waiting import eventually


def events(answer: Answer) -> list[Any]:
    return [json.loads(line) for line in answer.out.splitlines()]


def job(cli: Cli, job_id: int = 1) -> Any:
    return cli("job", str(job_id), "--json").json["job"]


def test_each_job_is_a_process_with_its_payload_and_no_dsn(cli: Cli) -> None:
    cli("enqueue", "greetings", '{"name": "Ada", "tags": ["x", "y"]}', "--kind", "hello")
    script = 'cat; cat "$SLUICEGATE_PAYLOAD_FILE"; echo "$1 $2"; env | grep ^SLUICEGATE_ | sort; [ $SLUICEGATE_KIND = hello ]'
    cli("exec", "greetings", "--drain", "--", "sh", "-c", script, "sh", "{payload.name}", "{payload.tags.1}")
    done = job(cli)
    assert done["state"] == "done", done
    result = json.dumps(done["result"])
    assert "Ada y" in result
    assert "SLUICEGATE_JOB_ID=1" in result
    assert "SLUICEGATE_LEASE_TOKEN=" in result
    assert "SLUICEGATE_DSN" not in result
    assert cli.environment["SLUICEGATE_DSN"] not in result


def test_what_happens_is_told_as_a_line_each(cli: Cli) -> None:
    cli("enqueue", "q", "--from-lines", "-", "--max-attempts", "1", stdin="0\n3\n75\n")
    answer = cli(
        "exec",
        "q",
        "--drain",
        "--concurrency",
        "3",
        "--json",
        "--",
        "sh",
        "-c",
        "echo why >&2; exit $1",
        "sh",
        "{payload}",
    )
    told = events(answer)
    assert all(datetime.fromisoformat(event["at"]).tzinfo is not None and event["worker"] for event in told)
    assert all(event["attempt_id"] for event in told if event["event"] == "started")
    assert {event["exit_code"] for event in told if event["event"] == "done"} == {0}
    ends = {event["job_id"]: event["event"] for event in told if event["event"] not in ("started", "ended")}
    assert ends == {1: "done", 2: "dead_letter", 3: "released"}
    assert sum(event["event"] == "started" for event in told) == 3
    assert "why" in next(event["message"] for event in told if event["job_id"] == 2 and event["event"] == "dead_letter")
    last = told[-1]
    assert (last["event"], last["claimed"], last["done"], last["dead_letters"]) == ("ended", 3, 1, 1)
    assert "lease_token" not in answer.out
    assert answer.err == ""


def test_people_are_told_in_words(cli: Cli) -> None:
    cli("enqueue", "q", "--from-lines", "-", "--max-attempts", "2", stdin="fine\nbad\n")
    shown = cli(
        "exec",
        "q",
        "--drain",
        "--",
        "sh",
        "-c",
        'test "$1" = fine || { echo "no luck" >&2; exit 2; }',
        "sh",
        "{payload}",
    ).out
    assert "job 1 done after" in shown
    assert "job 2 failed after" in shown
    assert "(attempt 1 of 2)" in shown
    assert "    no luck" in shown
    assert shown.splitlines()[-1].startswith("2 attempts in ")
    assert "nothing to do" in cli("exec", "empty", "--drain", "--", "true").out


def test_it_runs_until_it_is_stopped_and_lets_the_running_command_end(cli: Cli) -> None:
    go, started = cli.place / "go", cli.place / "started"
    os.mkfifo(go)
    worker = cli.start(
        "exec", "q", "--worker", "first", "--json", "--", "sh", "-c", f"touch {started}; cat {go}; echo over"
    )
    cli("enqueue", "q", "1")
    eventually(started.exists, "the command runs")
    worker.send_signal(signal.SIGTERM)
    assert worker.stdout is not None
    seen: list[Any] = []
    while not seen or seen[-1]["event"] != "stopping":
        seen.append(json.loads(worker.stdout.readline()))
    go.write_text("now")
    out, err = worker.communicate(timeout=60)
    assert (worker.returncode, err) == (0, "")
    assert [event["event"] for event in map(json.loads, out.splitlines())] == ["done", "ended"]
    assert cli("job", "1", "--json").json["attempts"][0]["worker"] == "first"


def test_a_command_can_use_its_own_lease_token(cli: Cli) -> None:
    cli("enqueue", "q", "1")
    script = f'SLUICEGATE_DSN="$1" "{PROGRAM}" heartbeat "$SLUICEGATE_JOB_ID" --note "half way"'
    (cli.place / "dsn").write_text(cli.environment["SLUICEGATE_DSN"])
    cli("exec", "q", "--drain", "--", "sh", "-c", script, "sh", cli.environment["SLUICEGATE_DSN"])
    done = job(cli)
    assert done["state"] == "done", done
    assert "is yours until" in json.dumps(done["result"])


def test_wrong_options_are_refused_before_anything_is_claimed(cli: Cli) -> None:
    cli("enqueue", "q", "1")
    wrong: list[tuple[tuple[str, ...], str]] = [
        (("q",), "command"),
        (("q", "--concurrency", "0", "--", "true"), "concurrency"),
        (("q", "--concurrency", "1001", "--", "true"), "concurrency"),
        (("q", "--lease", "0", "--", "true"), "lease_seconds"),
        (("q", "--timeout", "0", "--", "true"), "timeout"),
        (("q", "--grace", "-1", "--", "true"), "grace"),
        (("a b", "--", "true"), "queues[0]"),
        (("q", "--", "{payload.program}"), "command"),
    ]
    for arguments, field in wrong:
        error = cli("exec", "--json", *arguments, status=2).error
        assert (error["code"], error["field"]) == ("invalid_argument", field), arguments
    assert job(cli)["state"] == "pending"
    assert job(cli)["attempts_total"] == 0


def test_options_after_the_dashes_belong_to_the_command(cli: Cli) -> None:
    cli("enqueue", "q", "1")
    cli("exec", "q", "--drain", "--", "echo", "--json", "--dsn", "x", "--", "-1")
    assert "--json --dsn x -- -1" in json.dumps(job(cli)["result"])

"""Without a DSN: the private PostgreSQL, ``up`` and ``demo``."""

import json
import os
import re
import signal
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sluicegate.embedded import status
from tests.acceptance.conftest import Cli
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


def data(cli: Cli) -> Path:
    return Path(cli.environment["SLUICEGATE_DATA_DIR"])


def started(cli: Cli, *options: str) -> Any:
    """``up`` in JSON, once it is up: the process, and what it said."""
    process = cli.start("up", "--json", *options)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def test_a_command_starts_and_migrates_the_private_postgresql(private: Cli) -> None:
    first = private("enqueue", "reviews", "1")
    assert "pending in reviews" in first.out
    assert first.err == f"Making a private PostgreSQL in {data(private)} (once; a few seconds).\n"
    second = private("jobs")
    assert second.err == ""
    assert "reviews" in second.out
    report = private("doctor", "--json", status=None).json
    assert {check["name"]: check["status"] for check in report["checks"]}["schema"] == "ok"
    assert private("migrate", "--json").json["changed"] is False


def test_doctor_as_the_very_first_command_finds_nothing_missing(private: Cli) -> None:
    checks = {check["name"]: check for check in private("doctor", "--json").json["checks"]}
    assert checks["schema"]["status"] == "ok"
    assert checks["secrecy"]["facts"]["files"][0]["path"].endswith("password")


def test_up_holds_it_until_it_is_told_to_stop(private: Cli) -> None:
    process, told = started(private)
    assert told["data_dir"] == str(data(private).resolve())
    assert told["schema_version"] >= 1
    assert Path(told["password_file"]).read_text().strip() not in json.dumps(told)
    with psycopg.connect(told["conninfo"], password=Path(told["password_file"]).read_text().strip()) as conn:
        assert conn.execute("show search_path").fetchone() == ("public",)
    assert "up" in [client.label for client in status(data(private)).clients]
    private("enqueue", "reviews", "1")
    answer = private.stop(process)
    assert (answer.status, answer.out, answer.err) == (0, "", "")

    again = private.start("up")
    assert again.stdout is not None
    shown = [again.stdout.readline() for _ in range(10)]
    assert shown[0].startswith("PostgreSQL 18")
    assert any("enqueue hello" in line for line in shown)
    assert private.stop(again, signal.SIGINT).status == 0
    assert private("jobs", "--json").json["jobs"][0]["queue"] == "reviews"


def test_up_starts_it_again_when_its_supervisor_has_died(private: Cli) -> None:
    process, told = started(private)
    pid = told["supervisor_pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: status(data(private)).supervisor_pid not in (None, pid), "another supervisor")
    assert private("enqueue", "reviews", "1", "--json").json["created"] is True
    assert private.stop(process).status == 0


def test_up_with_a_dsn_has_nothing_to_hold(cli: Cli) -> None:
    error = cli("up", "--json", status=2).error
    assert (error["code"], error["field"]) == ("invalid_argument", "dsn")
    assert cli("up", "--port", "0", "--json", env={"SLUICEGATE_DSN": ""}, status=2).error["field"] == "port"


def test_a_port_that_is_taken_is_told(private: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        error = private.refused("up", "--port", str(taken.getsockname()[1]))
    assert error["code"] == "embedded"
    assert error["next_step"]


def test_the_demo_compiles_real_files_and_ends_with_a_table(private: Cli) -> None:
    answer = private("demo", "--count", "30", "--concurrency", "2")
    shown = answer.out
    told = [line.strip() for line in answer.err.splitlines()]
    (first,) = (at for at, line in enumerate(told) if re.search(r": at most 10 an hour .*, at most 2 at once\.$", line))
    (held,) = (
        at for at, line in enumerate(told) if "deferred: its budget is used up (window_exhausted), until " in line
    )
    # One of the ten may have been the second attempt of the file that does not compile.
    assert re.match(r"10 have started; (21|22) jobs are deferred: ", told[held])
    (raised,) = (at for at, line in enumerate(told) if "raised, and the rest runs: at most 1,000 an hour" in line)
    assert first < held < raised
    ended = [int(line.partition(" ")[0]) for line in told if line.endswith("of 31")]
    before = [int(line.partition(" ")[0]) for line in told[:held] if line.endswith("of 31")]
    assert max(before) <= 10 < max(ended)
    assert re.search(r"done +30 +of 31 files compile", shown)
    assert re.search(r"failed +1 ", shown)
    assert re.search(r"attempts +32 ", shown)
    assert re.search(r"duration +[0-9.]+ s", shown)
    assert "SyntaxError: '(' was never closed" in shown
    assert "does_not_compile.py" in shown

    queue = shown.partition("--queue ")[2].split()[0]
    (dead,) = private("jobs", "--queue", queue, "--state", "failed", "--json").json["jobs"]
    assert (dead["attempts_total"], dead["dead_letter"]) == (2, True)
    attempts = private("job", str(dead["id"]), "--json").json["attempts"]
    assert ["SyntaxError" in attempt["error"] for attempt in attempts] == [True, True]


def test_the_demo_answers_in_json_on_a_database_of_ones_own(cli: Cli) -> None:
    summary = cli("demo", "--count", "15", "--json").json
    wanted = {"jobs": 16, "done": 15, "failed": 1, "attempts": 17}
    assert {name: summary[name] for name in wanted} == wanted
    budget = summary["budget"]
    assert (budget["charged"], budget["reason"]) == (10, "window_exhausted")
    assert budget["deferred"] in (6, 7), "the second attempt of the one that fails may wait with them"
    shown = cli("queue", "budget", "show", summary["queue"], "--json").json
    assert (shown["status"], shown["gates"][-1]["used"]) == ("admitted", 17)
    assert [entry["reason"] for entry in cli("queue", "budget", "audit", summary["queue"], "--json").json["audit"]] == [
        "the rest may run now",
        "the demonstration",
    ]
    starts = [
        attempt["opened_at"]
        for job in cli("jobs", "--queue", summary["queue"], "--json").json["jobs"]
        for attempt in cli("job", str(job["id"]), "--json").json["attempts"]
    ]
    raised_at = cli("queue", "budget", "audit", summary["queue"], "--json").json["audit"][0]["at"]
    assert sum(datetime.fromisoformat(at) < datetime.fromisoformat(raised_at) for at in starts) == 10
    assert "SyntaxError" in summary["dead_letters"][0]["error"]
    assert cli("demo", "--count", "0", "--json", status=2).error["field"] == "count"
    assert cli("demo", "--concurrency", "0", "--count", "1", "--json", status=2).error["field"] == "concurrency"


def test_a_demo_with_less_than_its_budget_holds_nothing_back(cli: Cli) -> None:
    answer = cli("demo", "--count", "2")
    assert "deferred" not in answer.err
    assert re.search(r"done +2 +of 3 files compile", answer.out)


def test_a_demo_whose_role_may_not_set_budgets_says_so_and_runs(cli: Cli, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        name = f"worker_{db.info.dbname}"
        db.execute(f"create role {name} login password 'plain' in role sluicegate_worker, sluicegate_producer".encode())
        try:
            plain = make_conninfo(dsn, user=name, password="plain")
            answer = cli("demo", "--count", "2", env={"SLUICEGATE_DSN": plain})
        finally:
            db.execute(f"drop role {name}".encode())
    assert "No budget is shown: " in answer.err
    assert re.search(r"done +2 +of 3 files compile", answer.out)


def test_a_demo_that_is_stopped_leaves_no_claim(cli: Cli) -> None:
    demo = cli.start("demo", "--count", "500", "--concurrency", "2")
    assert demo.stderr is not None
    while "of 501" not in demo.stderr.readline():
        assert demo.poll() is None
    demo.send_signal(signal.SIGINT)
    out, _ = demo.communicate(timeout=60)
    assert (demo.returncode, out) == (130, "")
    assert cli("jobs", "--state", "claimed", "--json").json["jobs"] == []

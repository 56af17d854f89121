"""Many jobs at once: ``enqueue --from-lines`` and ``--from``."""

import json
import re
import subprocess
from typing import Any

import pytest

from tests.acceptance.conftest import PROGRAM, Cli


def payloads(cli: Cli, queue: str = "reviews") -> list[Any]:
    jobs = cli("jobs", "--queue", queue, "--limit", "200", "--json").json["jobs"]
    ids = sorted(job["id"] for job in jobs)
    return [cli("job", str(job), "--json").json["job"]["payload"] for job in ids]


def test_a_line_becomes_a_json_string(cli: Cli) -> None:
    lines = b'first\nsecond "quoted" \xc3\xa9\r\n\n  spaces \n{"not": "parsed"}'
    answer = cli("enqueue", "reviews", "--from-lines", "-", "--kind", "line", "--priority", "3", "--json", stdin=lines)
    assert [job["created"] for job in answer.json["jobs"]] == [True] * 5
    assert payloads(cli) == ["first", 'second "quoted" é', "", "  spaces ", '{"not": "parsed"}']
    job = cli("job", str(answer.json["jobs"][2]["id"]), "--json").json["job"]
    assert (job["kind"], job["priority"]) == ("line", 3)


def test_a_line_of_jsonl_is_a_payload(cli: Cli) -> None:
    file = cli.place / "work.jsonl"
    file.write_text('{"n": 1}\n\n[2]\n"three"\n')
    assert cli("enqueue", "reviews", "--from", str(file)).out == "enqueued 3 jobs (ids 1 to 3)\n"
    assert payloads(cli) == [{"n": 1}, [2], "three"]


def test_a_line_can_be_a_whole_job(cli: Cli) -> None:
    jobs = [
        {"payload": 1, "priority": 7, "tags": ["a"], "dedup_key": "one", "run_at": "2999-01-01T00:00:00Z"},
        {"payload": 2, "queue": "mail", "backoff": {"base_seconds": 1}, "max_attempts": 2},
        {"payload": 3, "dedup_key": "one"},
    ]
    text = "".join(json.dumps(job) + "\n" for job in jobs)
    made = cli("enqueue", "reviews", "--from", "-", "--as-jobs", "--kind", "k", "--json", stdin=text).json["jobs"]
    assert [(job["queue"], job["created"]) for job in made] == [("reviews", True), ("mail", True), ("reviews", False)]
    first, second = (cli("job", str(made[at]["id"]), "--json").json["job"] for at in (0, 1))
    assert (first["priority"], first["tags"], first["kind"], first["state"]) == (7, ["a"], "k", "scheduled")
    assert (second["max_attempts"], second["backoff"]["base_seconds"]) == (2, 1)
    told = cli("enqueue", "reviews", "--from", "-", "--as-jobs", stdin=text)
    assert "2 of them there before under their dedup key" in told.out


def test_nothing_to_enqueue_is_done(cli: Cli) -> None:
    assert cli("enqueue", "reviews", "--from-lines", "-", "--json").json == {"jobs": [], "replayed": False}
    assert cli("enqueue", "reviews", "--from", "-", stdin="\n").out == "There was nothing to enqueue.\n"


def test_more_jobs_than_one_call_takes_go_in_chunks(cli: Cli) -> None:
    file = cli.place / "many"
    file.write_text("".join(f"{n}\n" for n in range(25_001)))
    answer = cli("enqueue", "reviews", "--from-lines", str(file), "--json").json
    assert len({job["id"] for job in answer["jobs"]}) == 25_001


BAD = [
    ("--from", b'1\n{"a": NaN}\n', "payload", "Line 2: payload holds NaN"),
    ("--from", b"1\n2\nnope\n", "payload", "Line 3: payload is not valid JSON"),
    ("--from", b'"\\u0000"\n', "payload", "Line 1: payload holds a NUL"),
    ("--from", b"1\n\n" + b"[" * 3000 + b"]" * 3000, "payload", "Line 3: payload is nested"),
    ("--from-lines", b"ok\n\xff\n", "payload", "Line 2: payload is not UTF-8"),
    ("--from-lines", b"a" * 1_048_577, "payload", "Line 1: payload is larger than 1,048,576 bytes"),
    ("--from-lines", b"b\n" + b"a" * 9_000_000, "payload", "Line 2: payload is larger than"),
]


@pytest.mark.parametrize(("option", "content", "field", "message"), BAD, ids=[case[3][8:30] for case in BAD])
def test_a_file_is_checked_to_its_end_before_anything_is_enqueued(
    cli_without_database: Cli, option: str, content: bytes, field: str, message: str
) -> None:
    file = cli_without_database.place / "lines"
    file.write_bytes(content)
    error = cli_without_database("enqueue", "reviews", option, str(file), "--json", status=2).error
    assert (error["code"], error["field"]) == ("invalid_argument", field)
    assert error["message"].startswith(message)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ('{"payload": 1, "priority": 1.5}', "priority"),
        ('{"payload": 1, "priority": 99999}', "priority"),
        ('{"payload": 1, "colour": "red"}', "colour"),
        ('{"run_at": "infinity"}', "run_at"),
        ('{"queue": "a b"}', "queue"),
        ('{"tags": "night"}', "tags"),
        ('{"max_attempts": 0}', "max_attempts"),
        ('{"backoff": {"factor": 2}}', "backoff"),
        ('{"parent_id": "x"}', "parent_id"),
        ("[]", "job"),
    ],
)
def test_a_field_of_a_whole_job_is_refused_by_its_name_and_line(
    cli_without_database: Cli, line: str, field: str
) -> None:
    file = cli_without_database.place / "lines"
    file.write_text(f'{{"payload": 0}}\n{line}\n')
    error = cli_without_database("enqueue", "q", "--from", str(file), "--as-jobs", "--json", status=2).error
    assert error["field"] == field
    assert error["message"].startswith("Line 2: ")


def start(cli: Cli, *options: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [PROGRAM, "enqueue", "reviews", "--from", "-", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=cli.environment,
        cwd=cli.place,
    )


def test_a_bad_line_in_a_pipe_says_what_is_enqueued_and_repeating_enqueues_nothing_twice(cli: Cli) -> None:
    good = "".join(f"{n}\n" for n in range(10_000))
    process = start(cli)
    out, err = process.communicate((good + "1\nnope\n").encode())
    assert (process.returncode, out) == (2, b"")
    text = err.decode()
    assert "Line 10,002: payload is not valid JSON" in text
    assert "Before that, enqueued 10,000 jobs (ids 1 to 10000)" in text
    request_id = text.partition("--request-id ")[2].partition(":")[0]

    answer = cli("enqueue", "reviews", "--from", "-", "--request-id", request_id, "--json", stdin=good + "1\n2\n").json
    assert answer["replayed"] is True
    assert [job["id"] for job in answer["jobs"]] == list(range(1, 10_003))


def test_what_was_delayed_is_repeated_for_the_same_time(cli: Cli) -> None:
    good = "1\n" * 10_000
    process = start(cli, "--delay", "3600")
    _, err = process.communicate((good + "nope\n").encode())
    recipe = re.search(r"with --request-id (\w+), and --run-at (\S+) instead of --delay:", err.decode())
    assert process.returncode == 2
    assert recipe, err
    options = ("--request-id", recipe[1], "--run-at", recipe[2])
    answer = cli("enqueue", "reviews", "--from", "-", *options, "--json", stdin=good + "2\n").json
    assert answer["replayed"] is True
    assert [job["id"] for job in answer["jobs"]] == list(range(1, 10_002))
    first, last = (cli("job", str(job), "--json").json["job"]["run_at"] for job in (1, 10_001))
    assert first == last


def test_in_json_the_jobs_enqueued_before_an_error_stand_beside_it(cli: Cli) -> None:
    process = start(cli, "--json")
    out, err = process.communicate(b"1\n" * 10_000 + b"nope\n")
    assert (process.returncode, err) == (2, b"")
    answer = json.loads(out)
    assert len(answer["jobs"]) == 10_000
    assert answer["error"]["field"] == "payload"
    assert "--request-id" in answer["error"]["next_step"]


def test_there_is_one_source_of_payloads(cli_without_database: Cli) -> None:
    cli = cli_without_database
    wrong: list[tuple[tuple[str, ...], str]] = [
        (("1", "--from", "-"), "payload"),
        (("--from", "-", "--from-lines", "-"), "payload"),
        (("--from-lines", "-", "--dedup-key", "k"), "dedup_key"),
        (("--from-lines", "-", "--as-jobs"), "as_jobs"),
        (("--from-lines", "nowhere.txt"), "from"),
        (("--from-lines", "."), "from"),
        (("1", "--delay", "1", "--run-at", "2030-01-01T00:00:00Z"), "delay"),
        (("1", "--delay", "1", "--request-id", "r"), "delay"),
        (("--from", "-", "--delay", "1", "--request-id", "r"), "delay"),
    ]
    for arguments, field in wrong:
        error = cli("enqueue", "reviews", *arguments, "--json", status=2).error
        assert (error["code"], error["field"]) == ("invalid_argument", field), arguments
    delayed = cli("enqueue", "q", "1", "--delay", "1", "--request-id", "r", "--json", status=2).error
    assert "--run-at" in delayed["next_step"]

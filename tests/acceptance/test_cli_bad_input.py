"""Bad input: a clear error that names the field, status 2 (1 for what is not there), and nothing is changed."""

from collections.abc import Sequence

import pytest

from tests.acceptance.conftest import Cli

Arguments = Sequence[str | bytes]
MIB = 1_048_576

PAYLOADS: list[tuple[str, Arguments, bytes, str]] = [
    ("a payload of over 1 MiB", ("enqueue", "q", "-"), b'"' + b"a" * MIB + b'"', "payload"),
    ("a payload of over 16 MiB", ("enqueue", "q", "-"), b"a" * (16 * MIB + 1), "payload"),
    ("a NUL in a payload", ("enqueue", "q", '"\\u0000"'), b"", "payload"),
    ("a NUL in a key", ("enqueue", "q", '{"a\\u0000": 1}'), b"", "payload"),
    ("a lone surrogate as an escape", ("enqueue", "q", '"\\ud800"'), b"", "payload"),
    ("a lone surrogate as bytes", ("enqueue", "q", "-"), b'"\xed\xa0\x80"', "payload"),
    ("bytes that are not UTF-8", ("enqueue", "q", b'"\xff"'), b"", "payload"),
    ("text that is not JSON", ("enqueue", "q", "hello"), b"", "payload"),
    ("an empty payload", ("enqueue", "q", ""), b"", "payload"),
    ("two documents", ("enqueue", "q", "1 2"), b"", "payload"),
    ("NaN", ("enqueue", "q", "NaN"), b"", "payload"),
    ("infinity inside", ("enqueue", "q", '{"a": [-Infinity]}'), b"", "payload"),
    ("a number beyond floats", ("enqueue", "q", "1e999"), b"", "payload"),
    ("a number of 5,000 digits", ("enqueue", "q", "9" * 5000), b"", "payload"),
    ("101 levels", ("enqueue", "q", "[" * 101 + "]" * 101), b"", "payload"),
    ("a nesting bomb", ("enqueue", "q", "-"), b"[" * 200_000 + b"]" * 200_000, "payload"),
    ("a nesting bomb of objects", ("enqueue", "q", "-"), b'{"a":' * 200_000, "payload"),
]
FIELDS: list[tuple[str, Arguments, bytes, str]] = [
    ("an empty queue name", ("enqueue", "", "1"), b"", "queue"),
    ("white space in a queue name", ("enqueue", "a b", "1"), b"", "queue"),
    ("a slash in a queue name", ("enqueue", "a/b", "1"), b"", "queue"),
    ("a control character in a queue name", ("enqueue", "a\x01b", "1"), b"", "queue"),
    ("a queue name of 129 bytes", ("enqueue", "é" * 64 + "a", "1"), b"", "queue"),
    ("a queue name that is not UTF-8", ("enqueue", b"\xff", "1"), b"", "queue"),
    ("a queue to claim from", ("claim", "good", "a b"), b"", "queues[1]"),
    ("a fractional priority", ("enqueue", "q", "1", "--priority", "1.5"), b"", "priority"),
    ("a priority in hexadecimal", ("enqueue", "q", "1", "--priority", "0x10"), b"", "priority"),
    ("a priority above smallint", ("enqueue", "q", "1", "--priority", "32768"), b"", "priority"),
    ("a priority below smallint", ("enqueue", "q", "1", "--priority=-32769"), b"", "priority"),
    ("an endless priority", ("enqueue", "q", "1", "--priority", "9" * 90), b"", "priority"),
    ("run_at at infinity", ("enqueue", "q", "1", "--run-at", "infinity"), b"", "run_at"),
    ("run_at in year 10000", ("enqueue", "q", "1", "--run-at", "10000-01-01T00:00:00Z"), b"", "run_at"),
    ("run_at without a zone", ("enqueue", "q", "1", "--run-at", "2030-01-01T00:00:00"), b"", "run_at"),
    ("run_at past year 9999 in UTC", ("enqueue", "q", "1", "--run-at", "9999-12-31T23:00:00-05:00"), b"", "run_at"),
    ("max_attempts 0", ("enqueue", "q", "1", "--max-attempts", "0"), b"", "max_attempts"),
    ("a negative backoff", ("enqueue", "q", "1", "--backoff-base", "-1"), b"", "backoff.base_seconds"),
    ("33 tags", ("enqueue", "q", "1", *["--tag=a"] * 33), b"", "tags"),
    ("an empty tag", ("enqueue", "q", "1", "--tag="), b"", "tags[0]"),
    ("a parent that is no id", ("enqueue", "q", "1", "--parent", "-1"), b"", "parent_id"),
    ("a kind of 129 bytes", ("enqueue", "q", "1", "--kind", "k" * 129), b"", "kind"),
    ("an empty dedup key", ("enqueue", "q", "1", "--dedup-key="), b"", "dedup_key"),
    ("a request id of 129 bytes", ("enqueue", "q", "1", "--request-id", "r" * 129), b"", "request_id"),
]
OTHERS: list[tuple[str, Arguments, bytes, str]] = [
    ("lease 0", ("claim", "q", "--lease", "0"), b"", "lease_seconds"),
    ("lease 86401", ("claim", "q", "--lease", "86401"), b"", "lease_seconds"),
    ("a fractional lease", ("claim", "q", "--lease", "1.5"), b"", "lease_seconds"),
    ("a heartbeat with lease 0", ("heartbeat", "1", "--lease", "0"), b"", "lease_seconds"),
    ("0 claims", ("claim", "q", "-n", "0"), b"", "n"),
    ("1,001 claims", ("claim", "q", "-n", "1001"), b"", "n"),
    ("a job that is no number", ("job", "seven"), b"", "job_id"),
    ("a job beyond bigint", ("job", str(2**63)), b"", "job_id"),
    ("job 0", ("retry", "0"), b"", "job_id"),
    ("a limit of 201", ("jobs", "--limit", "201"), b"", "limit"),
    ("an unknown state", ("jobs", "--state", "sleeping"), b"", "state"),
    ("an interval of 0", ("jobs", "--watch", "--interval", "0"), b"", "interval"),
    ("a result that is not JSON", ("complete", "1", "--result", "fine"), b"", "result"),
    ("a wait without end", ("fail", "1", "--retry-in", "inf"), b"", "retry_in_seconds"),
    ("a wait that is NaN", ("fail", "1", "--retry-in", "nan"), b"", "retry_in_seconds"),
    ("a scope that is none", ("jobs", "--scope", "somebody"), b"", "scope"),
    ("a range of versions", ("migrate", "--sql", "x..y"), b"", "versions"),
]

ABSENT: list[tuple[str, Arguments]] = [
    ("a job", ("job", "4711")),
    ("a job to retry", ("retry", "4711")),
    ("a job to claim", ("claim", "--job", "4711")),
    ("a job to complete", ("complete", "4711")),
    ("the highest id there can be", ("cancel", str(2**63 - 1))),
    ("a scope", ("enqueue", "q", "1", "--scope", "team:nobody")),
    ("a queue to list", ("jobs", "--queue", "nothing")),
]


@pytest.mark.parametrize("cases", [PAYLOADS, FIELDS, OTHERS], ids=["payloads", "fields", "others"])
def test_bad_input_names_its_field_and_changes_nothing(
    cli: Cli, cases: list[tuple[str, Arguments, bytes, str]]
) -> None:
    for what, arguments, stdin, field in cases:
        answer = cli(*arguments, "--json", stdin=stdin, env={"SLUICEGATE_LEASE_TOKEN": "secret"}, status=None)
        assert answer.status == 2, (what, answer)
        error = answer.error
        assert (error["code"], error.get("field")) == ("invalid_argument", field), what
        assert error["next_step"], what
        assert len(error["message"]) < 500, what
    assert cli("jobs", "--json").json["jobs"] == []


def test_what_is_not_there_is_told_with_status_1(cli: Cli) -> None:
    for what, arguments in ABSENT:
        error = cli.refused(*arguments, env={"SLUICEGATE_LEASE_TOKEN": "secret"})
        assert error["code"] == "not_found", what
    assert cli("jobs", "--json").json["jobs"] == []


def test_a_payload_of_exactly_1_mib_is_taken_whatever_its_layout(cli: Cli) -> None:
    text = "a" * (MIB - 2)
    job = cli("enqueue", "q", "-", "--json", stdin=f'\n   "{text}"   \n').json["id"]
    assert cli("job", str(job), "--json").json["job"]["payload"] == text


def test_the_message_for_a_payload_without_quotes_shows_how_to_write_it(cli_without_database: Cli) -> None:
    told = cli_without_database("enqueue", "q", "hello", status=2)
    assert told.out == ""
    assert told.err.startswith("sluicegate: payload is not valid JSON")
    assert "'\"text\"'" in told.err


def test_last_words_that_postgresql_cannot_store_do_not_stop_a_job_from_finishing(cli: Cli) -> None:
    cli("enqueue", "q", "1", "--max-attempts", "1")
    claim = cli("claim", "q", "--json").json["claims"][0]
    token = {"SLUICEGATE_LEASE_TOKEN": claim["lease_token"]}
    done = cli("fail", str(claim["job"]["id"]), "--error", "-", "--json", stdin=b"a\0b \xff c", env=token).json
    assert done["dead_letter"] is True
    assert cli("job", str(claim["job"]["id"]), "--json").json["job"]["error"] == "a\\u0000b \ufffd c"

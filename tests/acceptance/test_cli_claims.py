"""Working on jobs by hand: ``claim``, ``heartbeat``, ``complete``, ``fail``, ``release``, and where the token comes from."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.acceptance.conftest import Cli

CLAIM = {
    "job", "attempt_id", "attempt_seq", "attempts_total", "prior_attempts",
    "lease_token", "lease_expires_at", "account", "admission",
}  # fmt: skip
JOB = {
    "id", "queue", "kind", "title", "payload", "priority", "tags", "parent_id", "attempt", "max_attempts",
}  # fmt: skip


def token(claim: Any) -> dict[str, str]:
    return {"SLUICEGATE_LEASE_TOKEN": claim["lease_token"]}


def test_a_claim_is_the_object_of_the_api(cli: Cli) -> None:
    cli("enqueue", "reviews", '{"pr": 1}')
    answer = cli("claim", "reviews", "--lease", "120", "--json").json
    assert {"claims", "deferred", "empty", "finished", "server_time"} <= set(answer)
    (claim,) = answer["claims"]
    assert set(claim) == CLAIM
    assert set(claim["job"]) == JOB
    assert claim["job"]["payload"] == {"pr": 1}
    left = datetime.fromisoformat(claim["lease_expires_at"]) - datetime.fromisoformat(answer["server_time"])
    assert 115 < left.total_seconds() <= 120


def test_nothing_to_claim_is_done_with_status_0(cli: Cli) -> None:
    answer = cli("claim", "nothing", "here", "--json").json
    assert (answer["claims"], answer["empty"], answer["deferred"]) == ([], True, [])
    told = cli("claim", "nothing")
    assert (told.out, told.err) == ("", "There is nothing to claim.\n")


def test_several_jobs_of_several_queues_come_by_priority(cli: Cli) -> None:
    for queue, priority in (("a", "20"), ("b", "-3"), ("a", "5"), ("c", "1")):
        cli("enqueue", queue, "1", "--priority", priority)
    claims = cli("claim", "a", "b", "-n", "3", "--json").json["claims"]
    assert [(claim["job"]["queue"], claim["job"]["priority"]) for claim in claims] == [("b", -3), ("a", 5), ("a", 20)]
    shown = cli("claim", "c")
    assert "job 4 of c, attempt 1 of 5" in shown.out
    assert "token" in shown.out


def test_one_job_is_claimed_by_its_id_once(cli: Cli) -> None:
    job = str(cli("enqueue", "reviews", "1", "--json").json["id"])
    assert set(cli("claim", "--job", job, "--json").json) == CLAIM
    assert cli.refused("claim", "--job", job)["state"] == "claimed"
    assert cli.refused("claim", "--job", "4711")["code"] == "not_found"


def test_a_repeated_claim_opens_nothing_more_and_renews_the_token(cli: Cli) -> None:
    cli("enqueue", "reviews", "--from-lines", "-", stdin="a\nb\n")
    first = cli("claim", "reviews", "--request-id", "r", "--json").json
    again = cli("claim", "reviews", "--request-id", "r", "--json").json
    assert again["replayed"] is True
    assert [claim["job"]["id"] for claim in again["claims"]] == [claim["job"]["id"] for claim in first["claims"]]
    (old,), (new,) = first["claims"], again["claims"]
    assert cli.refused("complete", str(old["job"]["id"]), env=token(old))["code"] == "conflict"
    cli("complete", str(new["job"]["id"]), env=token(new))
    gone = cli("claim", "reviews", "--request-id", "r", "--json").json
    assert (gone["claims"], gone["gone"]) == ([], [{"job_id": 1, "state": "done"}])


@pytest.mark.parametrize("source", ["environment", "file", "pipe", "claim file", "answer file"])
def test_the_token_comes_from_the_environment_a_file_or_a_pipe(
    cli: Cli, claimed: Callable[..., Any], source: str
) -> None:
    claim = claimed()
    job = str(claim["job"]["id"])
    file = cli.place / "token"
    match source:
        case "environment":
            done = cli("complete", job, "--json", env=token(claim))
        case "file":
            file.write_text(claim["lease_token"] + "\n")
            done = cli("complete", job, "--token-file", str(file), "--json", env={"SLUICEGATE_LEASE_TOKEN": "other"})
        case "pipe":
            done = cli("complete", job, "--token-file", "-", "--json", stdin=claim["lease_token"])
        case "claim file":
            file.write_text(json.dumps(claim))
            done = cli("complete", job, "--token-file", str(file), "--json")
        case _:
            file.write_text(json.dumps({"claims": [{"job": {"id": 0}, "lease_token": "x"}, claim]}))
            done = cli("complete", job, "--token-file", str(file), "--json")
    assert done.json["state"] == "done"


def test_a_token_is_never_an_argument_and_is_never_repeated(cli: Cli, claimed: Callable[..., Any]) -> None:
    claim = claimed()
    job, secret = str(claim["job"]["id"]), claim["lease_token"]
    attempts = (("--token", secret), ("--lease-token", secret), (f"--token={secret}",), (secret,))
    for verb in ("complete", "fail", "release", "heartbeat"):
        for given in attempts if verb == "complete" else attempts[-1:]:
            told = cli(verb, job, *given, status=2)
            assert "never an argument" in told.err
            assert secret not in told.err + told.out
    assert cli("job", job, "--json").json["job"]["state"] == "claimed"


@pytest.mark.parametrize(
    ("content", "problem"),
    [("", "holds no lease token"), ("two words", "holds no lease token"), ('{"claims": []}', "holds no claim of job 1"),
     ("{", "not valid JSON"), ('{"job": 1}', "holds no claim of job 1"), (None, "Cannot read")],
)  # fmt: skip
def test_a_file_without_the_token_is_refused(cli_without_database: Cli, content: str | None, problem: str) -> None:
    cli = cli_without_database
    file = cli.place / "token"
    if content is not None:
        file.write_text(content)
    error = cli("complete", "1", "--token-file", str(file), "--json", status=2).error
    assert error["field"] == "lease_token"
    assert problem in error["message"]


def test_without_a_token_the_message_says_where_to_put_it(cli_without_database: Cli) -> None:
    for verb in ("complete", "fail", "release", "heartbeat"):
        error = cli_without_database(verb, "1", "--json", status=2).error
        assert (error["code"], error["field"]) == ("invalid_argument", "lease_token")
        assert "SLUICEGATE_LEASE_TOKEN" in error["next_step"]


def test_a_finish_is_repeated_freely_and_another_outcome_is_a_conflict(cli: Cli, claimed: Callable[..., Any]) -> None:
    claim = claimed()
    job = str(claim["job"]["id"])
    first = cli("complete", job, "--result", '{"ok": true}', "--summary", "fine", "--json", env=token(claim)).json
    assert (first["status"], first["state"], first["replayed"]) == ("ok", "done", False)
    assert cli("complete", job, "--result", '{"ok": true}', "--json", env=token(claim)).json["replayed"] is True
    refusal = cli("fail", job, "--error", "late", env=token(claim), status=1)
    assert refusal.out == ""
    assert refusal.err.startswith("sluicegate: ")


def test_a_failed_attempt_waits_for_its_backoff_and_the_last_one_is_a_dead_letter(
    cli: Cli, claimed: Callable[..., Any]
) -> None:
    claim = claimed("reviews", "1", "--max-attempts", "2")
    job = str(claim["job"]["id"])
    first = cli("fail", job, "--error", "-", "--retry-in", "0", "--json", stdin="exit 3\n", env=token(claim)).json
    assert (first["state"] in ("scheduled", "pending"), first["attempt"], first["max_attempts"]) == (True, 1, 2)
    claim = cli("claim", "--job", job, "--json").json
    assert claim["prior_attempts"][0]["error"] == "exit 3"
    told = cli("fail", job, "--error", "exit 4", env=token(claim)).out
    assert told == f"job {job} is a dead letter after attempt 2 of 2\n"


def test_a_released_job_goes_back_and_gives_its_attempt_back_if_it_never_ran(
    cli: Cli, claimed: Callable[..., Any]
) -> None:
    claim = claimed()
    job = str(claim["job"]["id"])
    back = cli("release", job, "--reason", "shutdown", "--not-started", "--json", env=token(claim)).json
    assert (back["state"], back["attempt"]) == ("pending", 0)
    claim = cli("claim", "--job", job, "--json").json
    later = cli("release", job, "--not-before", "2999-01-01T00:00:00Z", "--json", env=token(claim)).json
    assert (later["state"], later["run_at"], later["attempt"]) == ("scheduled", "2999-01-01T00:00:00+00:00", 1)


def test_a_heartbeat_prolongs_and_shortens_only_when_asked(cli: Cli, claimed: Callable[..., Any]) -> None:
    claim = claimed()
    job = str(claim["job"]["id"])

    def left(*options: str) -> float:
        beat = cli("heartbeat", job, *options, "--json", env=token(claim)).json
        end, now = (datetime.fromisoformat(beat[name]) for name in ("lease_expires_at", "server_time"))
        return (end - now).total_seconds()

    assert 990 < left("--lease", "1000", "--note", "half way") <= 1000
    assert left("--lease", "10") > 900
    assert left("--lease", "10", "--shorten") <= 10
    assert f"job {job} is yours until" in cli("heartbeat", job, env=token(claim)).out
    refusal = cli.refused("heartbeat", job, env={"SLUICEGATE_LEASE_TOKEN": "wrong"})
    assert refusal["code"] == "conflict"


def test_claim_wants_queues_or_a_job(cli_without_database: Cli) -> None:
    for arguments in (("claim",), ("claim", "reviews", "--job", "1"), ("claim", "--job", "1", "-n", "2")):
        assert cli_without_database(*arguments, "--json", status=2).error["code"] == "invalid_argument"

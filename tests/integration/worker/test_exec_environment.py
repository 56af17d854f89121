"""What a command finds: its payload, its variables, and no way to the database."""

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from sluicegate import Client
from sluicegate.errors import InvalidArgument, SluicegateError
from sluicegate.worker.exec import StopRequest, WorkerEvent, run_exec
from tests.conftest import Connection
from tests.integration.worker.support import QUEUE, run_jobs, sh

PAYLOADS: list[Any] = [
    None,
    "text",
    {"a": [1, 2.5, True, None, {"b": "ü €"}], "quote": "\"'\\"},
    "x" * 1_000_000,
    [[[]]],
]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where private folders are made."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


async def test_the_payload_is_on_standard_input_and_in_a_file(client: Client, tmp_path: Path) -> None:
    script = (
        f'cat > {tmp_path}/$SLUICEGATE_JOB_ID.in; cat "$SLUICEGATE_PAYLOAD_FILE" > {tmp_path}/$SLUICEGATE_JOB_ID.file'
    )
    outcome = await run_jobs(client, sh(script), PAYLOADS)
    assert outcome.report.done == len(PAYLOADS)
    for payload, detail in zip(PAYLOADS, outcome.jobs, strict=True):
        for kind in ("in", "file"):
            assert json.loads((tmp_path / f"{detail.job.id}.{kind}").read_bytes()) == payload


async def test_a_command_that_reads_nothing_of_a_large_payload_is_fine(client: Client) -> None:
    assert (await run_jobs(client, ["true"], ["x" * 1_000_000])).report.done == 1


async def test_the_file_is_private_and_gone_afterwards(client: Client, temporary: Path) -> None:
    outcome = await run_jobs(
        client, sh('stat -c "%a %s" "$SLUICEGATE_PAYLOAD_FILE" "$(dirname "$SLUICEGATE_PAYLOAD_FILE")"'), [{"a": 1}]
    )
    file, folder = outcome.result["stdout"].splitlines()
    assert file == f"600 {len(json.dumps({'a': 1}))}"
    assert folder.startswith("700 ")
    assert names(temporary) == []


async def test_the_file_of_a_job_is_gone_while_the_worker_goes_on(client: Client, temporary: Path) -> None:
    outcome = await run_jobs(client, sh('ls "$(dirname "$SLUICEGATE_PAYLOAD_FILE")" | wc -l'), [1, 2, 3])
    assert [detail.job.result["stdout"] for detail in outcome.jobs] == ["1\n"] * 3


async def test_the_file_is_gone_after_a_failure_too(client: Client, temporary: Path) -> None:
    script = temporary.parent / "script"  # nothing says what runs it, so it cannot be started
    script.write_text("true\n")
    script.chmod(0o755)
    assert "could not be started" in (await run_jobs(client, [str(script)])).error
    await run_jobs(client, sh("sleep 60"), timeout=0.2)
    assert names(temporary) == []


async def test_a_private_folder_that_was_cleaned_away_is_made_again(client: Client, temporary: Path) -> None:
    outcome = await run_jobs(client, sh('rm -r "$(dirname "$SLUICEGATE_PAYLOAD_FILE")"; cat'), [1, 2])
    assert [detail.job.result["stdout"] for detail in outcome.jobs] == ["1", "2"]
    assert names(temporary) == []


async def test_a_private_folder_that_became_somebody_elses_is_not_used(client: Client, temporary: Path) -> None:
    """The job goes back unspent, and this worker rests."""
    script = 'd="$(dirname "$SLUICEGATE_PAYLOAD_FILE")"; chmod 755 "$d"'
    stop = StopRequest()
    ids = [(await client.enqueue(QUEUE)).id for _ in range(2)]
    events: list[WorkerEvent] = []

    def on_event(event: WorkerEvent) -> None:
        events.append(event)
        if event.kind == "released":
            stop.ask()

    await run_exec(client, QUEUE, sh(script), on_event=on_event, stop=stop)
    assert [event.kind for event in events] == ["started", "done", "released", "stopping"]
    assert events[2].message is not None
    assert "is not a folder of this user's alone" in events[2].message
    job = (await client.get_job(ids[1])).job
    assert (job.state, job.attempt) == ("pending", 0)


async def test_the_variables_tell_the_job(client: Client) -> None:
    outcome = await run_jobs(
        client,
        ["env"],
        enqueue={"kind": "mail ü=\n"},
    )
    found = outcome.result["stdout"]
    assert f"SLUICEGATE_JOB_ID={outcome.job.job.id}\n" in found
    assert "SLUICEGATE_ATTEMPT=1\n" in found
    assert f"SLUICEGATE_QUEUE={QUEUE}\n" in found
    assert "SLUICEGATE_KIND=mail ü=\n\n" in found
    assert "SLUICEGATE_LEASE_TOKEN=" in found
    assert "SLUICEGATE_PAYLOAD_FILE=/" in found


async def test_the_lease_token_is_the_one_that_held_the_job(client: Client, db: Connection) -> None:
    outcome = await run_jobs(client, sh('printf %s "$SLUICEGATE_LEASE_TOKEN"'))
    row = await (await db.execute("select lease_token_hash from sluicegate.attempt_end")).fetchone()
    assert row == (hashlib.sha256(outcome.result["stdout"].encode()).digest(),)


async def test_no_dsn_and_no_secret_of_the_worker_is_in_the_environment(
    client: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = uuid.uuid4().hex
    names = ["SLUICEGATE_TOKEN", "SLUICEGATE_LEASE_TOKEN", "PGPASSWORD", "PGHOST", "PGUSER", "PGDATABASE", "PGAPPNAME"]
    secrets = {"SLUICEGATE_DSN": dsn, **{name: f"{mark}-{name}" for name in names}}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DATABASE_URL", dsn)
    monkeypatch.setenv("HARMLESS", "kept")
    outcome = await run_jobs(client, sh("env -0 | tr '\\0' '\\n'; tr '\\0' '\\n' < /proc/$PPID/environ"))
    found = outcome.result["stdout"]
    assert "HARMLESS=kept" in found
    assert mark not in found
    assert dsn not in found
    assert not [line for line in found.splitlines() if line.startswith(("PG", "SLUICEGATE_DSN"))]


async def test_values_of_the_payload_reach_arguments_untouched_by_any_shell(client: Client) -> None:
    value = "a b; $(id) `id` * \"'\\ ü"
    outcome = await run_jobs(
        client, ["printf", "[%s]", "{payload.v}", "x={payload.n}", "{other}", "${HOME}"], [{"v": value, "n": [1]}]
    )
    assert outcome.result["stdout"] == f"[{value}][x=[1]][{{other}}][${{HOME}}]"


async def test_an_unknown_path_is_a_dead_letter_with_its_name_and_starts_nothing(
    client: Client, tmp_path: Path
) -> None:
    outcome = await run_jobs(client, ["touch", f"{tmp_path}/{{payload.name}}"], [{"nome": "x"}])
    assert outcome.error == (
        "The command line asks for {payload.name}, but the payload does not have it: there is no 'name'."
    )
    assert names(tmp_path) == []
    assert (outcome.report.failed, outcome.report.dead_letters) == (1, 1)
    assert [event.kind for event in outcome.events] == ["dead_letter"]


async def test_a_value_over_64_kib_fails_the_attempt(client: Client) -> None:
    outcome = await run_jobs(client, ["echo", "{payload}"], ["x" * 65_537])
    assert "which is 65,537 bytes here; at most 65,536 fit an argument" in outcome.error


async def test_undecodable_words_reach_the_command_as_they_are(client: Client) -> None:
    word = os.fsdecode(b"caf\xe9")
    outcome = await run_jobs(client, ["sh", "-c", 'printf %s "$1" | od -An -tx1', "sh", word])
    assert outcome.result["stdout"].split() == ["63", "61", "66", "e9"]


async def test_signals_are_as_a_new_program_expects_them(client: Client) -> None:
    outcome = await run_jobs(client, sh("grep -E '^Sig(Ign|Blk)' /proc/self/status; yes | head -n 1"))
    ignored, blocked, yes = outcome.result["stdout"].splitlines()
    assert (int(ignored.split()[1], 16), int(blocked.split()[1], 16), yes) == (0, 0, "y")


async def test_a_command_leads_a_process_group_of_its_own(client: Client) -> None:
    outcome = await run_jobs(client, sh("cut -d' ' -f1,5,6 /proc/$$/stat"))
    pid, group, session = outcome.result["stdout"].split()
    assert pid == group == session


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("concurrency", {"concurrency": 0}),
        ("concurrency", {"concurrency": 1001}),
        ("concurrency", {"concurrency": True}),
        ("lease_seconds", {"lease_seconds": 0}),
        ("lease_seconds", {"lease_seconds": 86_401}),
        ("timeout", {"timeout": 0}),
        ("timeout", {"timeout": float("nan")}),
        ("grace", {"grace": -1}),
        ("command", {"command": []}),
        ("queues[0]", {"queue": "no spaces"}),
        ("queues", {"queue": []}),
    ],
)
async def test_bad_options_are_refused_by_name_before_anything_is_claimed(
    client: Client, field: str, options: dict[str, Any]
) -> None:
    job = await client.enqueue(QUEUE)
    with pytest.raises(InvalidArgument) as refused:
        await run_exec(client, **{"queue": QUEUE, "command": ["true"], "drain": True, **options})
    assert refused.value.field == field
    assert (await client.get_job(job.id)).job.state == "pending"


async def test_a_folder_that_cannot_be_made_is_told_before_anything_is_claimed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await client.enqueue(QUEUE)
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    with pytest.raises(SluicegateError, match="cannot prepare to run commands"):
        await run_exec(client, QUEUE, ["true"], drain=True)
    assert (await client.get_job(job.id)).job.state == "pending"

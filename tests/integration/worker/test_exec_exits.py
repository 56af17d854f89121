"""The table of exits: what a command's end means for its job."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sluicegate import Client, InvalidArgument
from sluicegate.worker.exec import run_exec
from tests.integration.worker.support import Marked, Outcome, run_jobs, sh


async def test_exit_code_0_completes_the_job_with_the_end_of_standard_output(client: Client) -> None:
    outcome = await run_jobs(client, sh("echo one; echo two; echo noise >&2"))
    assert outcome.job.job.state == "done"
    assert outcome.result == {"exit_code": 0, "stdout": "one\ntwo\n", "stdout_bytes_left_out": 0}
    assert (outcome.report.claimed, outcome.report.done, outcome.report.failed) == (1, 1, 0)
    assert [event.kind for event in outcome.events] == ["started", "done"]


async def test_exit_code_75_gives_the_job_back_for_later(client: Client) -> None:
    before = datetime.now(UTC)
    outcome = await run_jobs(client, sh("echo quota is used up >&2; exit 75"))
    job = outcome.job.job
    assert (job.state, job.attempt) == ("scheduled", 1)
    assert timedelta(seconds=59) < job.run_at - before < timedelta(seconds=75)
    (attempt,) = outcome.job.attempts
    assert (attempt.outcome, attempt.disposition) == ("released", "requeued")
    assert attempt.error is not None
    assert "exit code 75" in attempt.error
    assert "quota is used up" in attempt.error
    assert (outcome.report.released, outcome.report.done) == (1, 0)


async def test_exit_code_75_at_the_attempt_cap_waits_for_another_attempt(client: Client) -> None:
    outcome = await run_jobs(client, sh("exit 75"), enqueue={"max_attempts": 1})
    assert (outcome.job.job.state, outcome.job.job.attempt) == ("scheduled", 1)
    assert (outcome.report.released, outcome.report.dead_letters) == (1, 0)
    assert outcome.events[-1].kind == "released"


async def test_any_other_exit_code_fails_the_attempt_with_the_end_of_standard_error(client: Client) -> None:
    outcome = await run_jobs(client, sh("echo out; echo 'no such host' >&2; exit 3"))
    assert outcome.job.job.state == "scheduled"
    assert outcome.error == "The command ended with exit code 3.\nno such host"
    assert outcome.job.attempts[0].outcome == "failed"
    assert (outcome.report.failed, outcome.report.dead_letters) == (1, 0)


async def test_the_last_attempt_makes_a_dead_letter(client: Client) -> None:
    outcome = await run_jobs(client, sh("exit 1"), enqueue={"max_attempts": 1})
    assert outcome.job.job.dead_letter
    assert (outcome.report.failed, outcome.report.dead_letters) == (1, 1)


async def test_without_words_on_standard_error_the_end_of_standard_output_is_told(client: Client) -> None:
    outcome = await run_jobs(client, sh("echo 'FAILED: 3 tests'; exit 1"))
    assert "exit code 1" in outcome.error
    assert outcome.error.endswith("standard output ended:\nFAILED: 3 tests")


async def test_a_signal_is_named(client: Client) -> None:
    outcome = await run_jobs(client, sh("echo last words >&2; kill -SEGV $$"))
    assert outcome.error == "The command was killed by signal 11, SIGSEGV.\nlast words"
    assert outcome.report.failed == 1


async def test_a_real_time_signal_has_no_name_and_is_told_all_the_same(client: Client) -> None:
    outcome = await run_jobs(client, sh("kill -40 $$"))
    assert "signal 40" in outcome.error


async def test_a_timeout_is_named_and_kills_the_whole_group(client: Client, marked: Marked) -> None:
    outcome = await run_jobs(client, sh("echo begun >&2; sleep 300 & sleep 300; true"), timeout=0.3)
    assert outcome.error == "The command ran longer than its timeout of 0.3 s and was killed.\nbegun"
    assert outcome.job.job.state == "scheduled"
    await marked.gone()


async def test_a_command_that_ignores_the_polite_signal_is_killed(client: Client, marked: Marked) -> None:
    outcome = await run_jobs(client, sh("trap '' TERM; while :; do sleep 0.1; done"), timeout=0.2)
    assert "timeout of 0.2 s" in outcome.error
    await marked.gone()


async def test_a_timeout_that_is_not_reached_changes_nothing(client: Client) -> None:
    outcome = await run_jobs(client, ["true"], timeout=60)
    assert outcome.report.done == 1


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("/no-such-place/program", "There is no program /no-such-place/program here."),
        ("no-such-program", "There is no program no-such-program here."),
        ("/etc/passwd", "/etc/passwd cannot be executed here."),
        ("/tmp", "/tmp cannot be executed here."),
    ],
)
async def test_a_program_that_is_not_there_is_refused_before_anything_is_claimed(
    client: Client, program: str, problem: str
) -> None:
    job = await client.enqueue("q")
    with pytest.raises(InvalidArgument) as refused:
        await run_exec(client, "q", [program], drain=True)
    assert (refused.value.field, refused.value.message) == ("command", problem)
    assert (await client.get_job(job.id)).job.attempts_total == 0


async def test_a_program_that_has_gone_meanwhile_fails_the_attempt(client: Client, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\nrm "$0"\n')
    script.chmod(0o755)
    outcome = await run_jobs(client, [str(script)], [1, 2])
    job = outcome.jobs[1].job
    assert (job.error or "").startswith(f"The command could not be started: No such file or directory: {script}.")
    assert (job.state, job.attempt) == ("scheduled", 1)
    assert job.run_at > datetime.now(UTC) + timedelta(seconds=20), "it waits out its backoff"
    assert (outcome.report.claimed, outcome.report.done, outcome.report.failed) == (2, 1, 1)


async def test_a_script_without_an_interpreter_line_cannot_be_started(client: Client, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    outcome = await run_jobs(client, [str(script)])
    assert "Exec format error" in outcome.error


async def test_arguments_beyond_what_the_system_takes_fail_the_attempt(client: Client) -> None:
    outcome = await run_jobs(client, ["echo", "{payload.a}{payload.a}{payload.a}"], [{"a": "x" * 65_000}])
    assert "Argument list too long" in outcome.error


async def test_every_exit_leaves_room_for_the_next_job(client: Client) -> None:
    """One slot, and every kind of end in it: all jobs are run, and the sum of ends is the number of claims."""
    script = 'case "$1" in kill) kill -9 $$;; hang) sleep 60;; *) exit "$1";; esac'
    ends = ["0", "1", "75", "kill", "hang", "0", "2", "0"]
    outcome = await run_jobs(client, ["sh", "-c", script, "sh", "{payload}"], ends, timeout=1)
    assert states(outcome) == ["done", "scheduled", "scheduled", "scheduled", "scheduled", "done", "scheduled", "done"]
    report = outcome.report
    assert (report.claimed, report.done, report.failed, report.released, report.lost) == (8, 3, 4, 1, 0)


def states(outcome: Outcome) -> list[str]:
    return [detail.job.state for detail in outcome.jobs]

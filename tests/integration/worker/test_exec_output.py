"""Output of any size and of any bytes."""

import time
from pathlib import Path

from sluicegate import Client
from tests.integration.worker.support import Marked, run_jobs, sh

MEGABYTE = 1024 * 1024


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_fifty_megabytes_on_both_streams_at_once_leave_their_ends(client: Client) -> None:
    script = "head -c 52428800 /dev/zero | tr '\\0' o & head -c 52428800 /dev/zero | tr '\\0' e >&2; wait; echo last"
    outcome = await run_jobs(client, sh(script))
    assert outcome.job.job.state == "done"
    assert outcome.result["stdout"].endswith("ooolast\n")
    assert len(outcome.result["stdout"]) == 16_384
    assert outcome.result["stdout_bytes_left_out"] == 50 * MEGABYTE + len("last\n") - 16_384


async def test_a_failure_after_fifty_megabytes_tells_the_last_of_them(client: Client) -> None:
    outcome = await run_jobs(client, sh("head -c 52428800 /dev/zero | tr '\\0' e >&2; echo why >&2; exit 9"))
    first, cut, rest = outcome.error.split("\n", 2)
    assert first == "The command ended with exit code 9."
    assert cut == f"[{50 * MEGABYTE + len('why') + 1 - 12_000:,} bytes before this are left out]"
    assert rest.endswith("eeewhy")


async def test_a_cut_through_a_character_leaves_no_broken_one(client: Client) -> None:
    outcome = await run_jobs(client, sh("yes äöü | head -n 10000"))
    assert "\ufffd" not in outcome.result["stdout"]
    assert outcome.result["stdout"].endswith("äöü\näöü\n")


async def test_bytes_that_are_no_text_become_replacement_characters(client: Client) -> None:
    outcome = await run_jobs(client, sh("printf 'a\\377\\376b'"))
    assert outcome.result["stdout"] == "a\ufffd\ufffdb"


async def test_random_bytes_on_both_streams_finish_the_job_either_way(client: Client) -> None:
    script = "head -c 300000 /dev/urandom; head -c 300000 /dev/urandom >&2; exit $0"
    outcome = await run_jobs(client, ["sh", "-c", script, "{payload}"], [0, 1])
    assert [job.job.state for job in outcome.jobs] == ["done", "scheduled"]
    assert outcome.report.lost == 0


async def test_nul_is_escaped_in_results_and_in_errors(client: Client) -> None:
    outcome = await run_jobs(client, ["sh", "-c", "printf 'a\\0b'; printf 'c\\0d' >&2; exit $0", "{payload}"], [0, 1])
    done, failed = outcome.jobs
    assert done.job.result["stdout"] == "a\\u0000b"
    assert failed.job.error == "The command ended with exit code 1.\nc\\u0000d"


async def test_a_process_left_behind_with_the_pipe_does_not_hold_the_worker_up(client: Client, marked: Marked) -> None:
    began = time.monotonic()
    outcome = await run_jobs(client, sh("sleep 300 & echo done"))
    assert outcome.result["stdout"] == "done\n"
    assert time.monotonic() - began < 30
    await marked.gone(running="sleep 300")


async def test_what_is_written_shortly_after_the_end_is_still_read(client: Client) -> None:
    outcome = await run_jobs(client, sh("(sleep 0.2; echo late) & echo early"))
    assert outcome.result["stdout"] == "early\nlate\n"


async def test_a_command_may_close_its_streams_and_go_on(client: Client) -> None:
    outcome = await run_jobs(client, sh("exec <&- >&- 2>&-; sleep 0.2; exit 0"))
    assert outcome.result == {"exit_code": 0, "stdout": "", "stdout_bytes_left_out": 0}


async def test_no_descriptor_is_left_open(client: Client) -> None:
    await run_jobs(client, ["true"])
    before = descriptors()
    await run_jobs(client, sh("cat; echo x >&2; exit $0"), [0] * 20, concurrency=4)
    assert descriptors() <= before

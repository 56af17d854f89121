"""The guardian, with real processes and without a database."""

import asyncio
import os
import resource
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.worker.guardian import client
from sluicegate.worker.guardian.client import CannotStart, Child, Exit, Guardian, GuardianLost
from sluicegate.worker.guardian.frames import Frames, pack
from tests.integration.worker.support import MARK, Marked

NEVER = (0.0, 0.0)
# Members in the group, in groups of their own, in a session of their own, orphaned and not.
FAMILY = "set -m; sleep 301 & (sleep 302; true) & setsid sleep 303 & (setsid sleep 304 &); sleep 305; true"


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def mark() -> Marked:
    return Marked()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    private = tmp_path / "private"
    private.mkdir()
    return private


@pytest.fixture
async def guardian(folder: Path, mark: Marked) -> AsyncIterator[Guardian]:
    guardian = Guardian(folder, {**os.environb, MARK.encode(): mark.value.encode()})
    yield guardian
    await guardian.close()
    await mark.gone()


async def start(guardian: Guardian, *words: str, lease: tuple[float, float] = NEVER) -> Child:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        return await guardian.start([word.encode() for word in words], {b"X": b"a=b"}, (null, null, null), lease)
    finally:
        os.close(null)


async def run(guardian: Guardian, *words: str) -> Exit:
    child = await start(guardian, *words)
    exited = await child.exited
    await child.end()
    return exited


@given(
    frames=st.lists(st.lists(st.binary(max_size=40).map(lambda field: field.replace(b"\0", b"")), min_size=1)),
    cuts=st.lists(st.integers(1, 50), min_size=1),
)
def test_frames_come_out_as_they_went_in_however_they_are_cut(frames: list[list[bytes]], cuts: list[int]) -> None:
    stream = b"".join(pack(*fields) for fields in frames)
    reader, found, position, index = Frames(), [], 0, 0
    while position < len(stream):
        step = cuts[index % len(cuts)]
        found += reader.feed(stream[position : position + step])
        position, index = position + step, index + 1
    assert found == frames


async def test_codes_and_signals_come_back(guardian: Guardian) -> None:
    assert await run(guardian, "true") == Exit(0, None)
    assert await run(guardian, "sh", "-c", 'test "$X" = a=b || exit 1; exit 7') == Exit(7, None)
    assert await run(guardian, "sh", "-c", "kill -9 $$") == Exit(None, 9)


async def test_many_commands_at_once_each_get_their_own_end(guardian: Guardian) -> None:
    exits = await asyncio.gather(*(run(guardian, "sh", "-c", f"exit {number}") for number in range(60)))
    assert [found.code for found in exits] == list(range(60))


@pytest.mark.parametrize("words", [["no-such-program"], ["/etc/passwd"], ["echo", "x" * 200_000]])
async def test_what_cannot_be_started_is_told_and_the_next_command_runs(guardian: Guardian, words: list[str]) -> None:
    with pytest.raises(CannotStart) as refused:
        await start(guardian, *words)
    assert not refused.value.of_machine
    assert await run(guardian, "true") == Exit(0, None)


async def test_a_machine_without_descriptors_is_told_apart_and_recovers(guardian: Guardian) -> None:
    await run(guardian, "true")
    assert guardian.pid is not None
    limits = resource.prlimit(guardian.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(guardian.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    with pytest.raises(CannotStart) as refused:
        await start(guardian, "true")
    assert refused.value.of_machine
    resource.prlimit(guardian.pid, resource.RLIMIT_NOFILE, limits)
    assert await run(guardian, "true") == Exit(0, None)


async def test_killing_reaches_what_left_the_group_but_not_the_family(guardian: Guardian, mark: Marked) -> None:
    child = await start(
        guardian, "bash", "-c", "set -m; trap '' TERM; sleep 301 & (sleep 302; true) & sleep 303; sleep 304"
    )
    await mark.running("sleep 30", 3)
    child.kill(0.2)
    assert await child.exited == Exit(None, 9)
    await child.end()
    await mark.gone("sleep")


async def test_the_end_of_a_command_is_the_end_of_its_session(guardian: Guardian, mark: Marked) -> None:
    child = await start(guardian, "bash", "-c", "set -m; sleep 301 & sleep 302 & exit 3")
    assert await child.exited == Exit(3, None)
    await child.end()
    assert mark.pids(running="sleep") == []


async def test_a_command_is_ended_when_its_lease_is_over(guardian: Guardian) -> None:
    now = time.monotonic()
    child = await start(guardian, "sleep", "301", lease=(now + 0.3, now + 0.5))
    assert await child.exited == Exit(None, 15, by_lease=True)
    assert time.monotonic() - now >= 0.3


async def test_a_stubborn_command_is_killed_when_its_lease_is_over(guardian: Guardian) -> None:
    now = time.monotonic()
    child = await start(
        guardian, "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done", lease=(now + 0.3, now + 0.6)
    )
    assert await child.exited == Exit(None, 9, by_lease=True)


async def test_a_renewed_lease_lets_it_live(guardian: Guardian) -> None:
    now = time.monotonic()
    child = await start(guardian, "sleep", "1", lease=(now + 0.7, now + 0.8))
    child.keep_until(now + 60, now + 60)
    assert await child.exited == Exit(0, None)


async def test_closing_leaves_no_process_and_no_folder(guardian: Guardian, mark: Marked, folder: Path) -> None:
    child = await start(guardian, "bash", "-c", FAMILY)
    await mark.running("sleep 30", 5)
    (folder / "file").write_text("x")
    await guardian.close()
    with pytest.raises(GuardianLost):
        await child.exited
    assert mark.pids() == []
    assert names(folder.parent) == []
    await guardian.close()


async def test_the_loss_of_the_guardian_ends_its_commands_and_the_next_one_gets_another(
    guardian: Guardian, mark: Marked
) -> None:
    child = await start(guardian, "sh", "-c", "sleep 301 & sleep 302; true")
    await mark.running("sleep 30", 2)
    assert guardian.pid is not None
    os.kill(guardian.pid, signal.SIGKILL)
    with pytest.raises(GuardianLost):
        await child.exited
    await child.end()
    await mark.gone("sleep")
    assert await run(guardian, "true") == Exit(0, None)


async def test_a_guardian_that_stands_still_is_given_up(guardian: Guardian, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(guardian, "true")
    assert guardian.pid is not None
    os.kill(guardian.pid, signal.SIGSTOP)
    monkeypatch.setattr(client, "_ANSWER", 0.3)
    with pytest.raises(GuardianLost):
        await start(guardian, "true")
    monkeypatch.undo()
    assert await run(guardian, "true") == Exit(0, None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_only_the_end_of_the_worker_ends_the_guardian(guardian: Guardian, number: signal.Signals) -> None:
    child = await start(guardian, "sleep", "0.5")
    assert guardian.pid is not None
    os.kill(guardian.pid, number)
    assert await child.exited == Exit(0, None)

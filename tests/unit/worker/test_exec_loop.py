"""The life of everything that loops."""

import asyncio

import pytest

from sluicegate.errors import Unavailable
from sluicegate.worker.loop import Loop, Pace

FOR_EVER = float("inf")


async def test_it_ends_when_its_tick_says_so() -> None:
    pauses = iter([0.0, 0.0, None])
    ticks = []

    async def tick() -> float | None:
        ticks.append(1)
        return next(pauses)

    loop = Loop(tick)
    loop.start()
    loop.start()
    await loop.wait()
    assert len(ticks) == 3
    await loop.stop()


async def test_waking_cuts_the_wait_short_and_is_not_lost_during_a_tick() -> None:
    ticks = 0

    async def tick() -> float | None:
        nonlocal ticks
        ticks += 1
        if ticks == 1:
            loop.wake()
        elif ticks == 2:
            asyncio.get_running_loop().call_soon(loop.wake)
        return FOR_EVER if ticks < 3 else None

    loop = Loop(tick)
    loop.start()
    async with asyncio.timeout(10):
        await loop.wait()
    assert ticks == 3


async def test_an_absent_database_is_asked_again_and_told_of() -> None:
    told: list[Unavailable] = []
    ticks = 0

    async def tick() -> float | None:
        nonlocal ticks
        ticks += 1
        if ticks < 4:
            raise Unavailable("away")
        return None

    loop = Loop(tick, away=told.append, backoff=Pace(0.001, 0.002))
    loop.start()
    async with asyncio.timeout(10):
        await loop.wait()
    assert len(told) == 3


async def test_any_other_error_ends_it_and_is_raised() -> None:
    async def tick() -> float | None:
        raise RuntimeError("a bug")

    loop = Loop(tick)
    loop.start()
    with pytest.raises(RuntimeError, match="a bug"):
        await loop.wait()
    await loop.stop()


async def test_stopping_breaks_a_tick_off_and_may_be_done_twice_or_before_the_start() -> None:
    broken_off = False

    async def tick() -> float | None:
        nonlocal broken_off
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            broken_off = True
            raise
        return None

    loop = Loop(tick)
    await loop.stop()
    loop.start()
    await asyncio.sleep(0)
    await loop.stop()
    await loop.stop()
    assert broken_off


def test_pauses_double_up_to_their_most_and_start_anew() -> None:
    pace = Pace(1, 8)
    pauses = [pace.next() for _ in range(6)]
    for pause, want in zip(pauses, [1, 2, 4, 8, 8, 8], strict=True):
        assert want * 0.8 <= pause <= want * 1.2
    pace.reset()
    assert pace.next() <= 1.2

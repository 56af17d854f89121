"""Claims whose answer is not known are repeated as they are; of all others the permits come back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from sluicegate.errors import Unavailable
from sluicegate.model import ClaimAnswer, ClaimAnswers, ClaimRefusal, ClaimRequest
from sluicegate.worker.dispatcher import Dispatcher
from sluicegate.worker.events import Tally
from sluicegate.worker.leases import LeaseKeeper, ServerClock
from sluicegate.worker.slots import Plan

A, B = (ClaimRequest((queue,), 1, None, queue) for queue in "ab")
NOTHING = ClaimAnswer((), (), True, (), False, (), datetime.now(UTC))
REFUSED = ClaimAnswer((), (), False, (), False, (), datetime.now(UTC), ClaimRefusal("unavailable", "not now"))
IN_DOUBT = ClaimAnswer(
    (), (), False, (), False, (), datetime.now(UTC), ClaimRefusal("unavailable", "not now", outcome_unknown=True)
)


class Database:
    """Of a client, the only verb needed: it answers what it was told to, and notes what it was asked for."""

    def __init__(self, *answers: Sequence[ClaimAnswer] | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[ClaimRequest, ...]] = []

    async def claim_many(self, asks: Sequence[ClaimRequest], **_: Any) -> ClaimAnswers:
        self.asked.append(tuple(asks))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ClaimAnswers(tuple(answer), (), datetime.now(UTC))


class Free:
    """Slots in which nothing runs, that ask for the same each time."""

    running = 0

    def __init__(self, *asks: ClaimRequest) -> None:
        self._asks = asks
        self.heard_of: list[tuple[ClaimRequest, ...]] = []
        self.given_back: list[ClaimRequest] = []
        self.go = asyncio.Event()
        self.go.set()

    async def plan(self, *_: Any) -> Plan:
        await self.go.wait()
        return Plan(self._asks)

    def start(self, *_: Any, **__: Any) -> None:
        raise AssertionError("nothing was claimed")

    def heard(self, asks: Sequence[ClaimRequest], *_: Any, **__: Any) -> float:
        self.heard_of.append(tuple(asks))
        return 0.0

    def dropped(self, asks: Sequence[ClaimRequest]) -> None:
        self.given_back += asks

    def look(self, **_: Any) -> None: ...


def dispatcher(database: Any, slots: Free) -> Dispatcher:
    tally, clock = Tally(None, lambda: None), ServerClock()
    keeper = LeaseKeeper(database, None, tally=tally, clock=clock, on_answer=lambda: None)
    return Dispatcher(database, slots, keeper=keeper, tally=tally, clock=clock, on_fault=lambda _: None)


async def test_what_was_refused_at_once_holds_up_nothing() -> None:
    database, slots = Database([REFUSED, NOTHING], [NOTHING, NOTHING]), Free(A, B)
    one = dispatcher(database, slots)
    for _ in range(2):
        await one._tick()
    assert database.asked == [(A, B), (A, B)]
    assert slots.heard_of == [(A, B), (A, B)]


async def test_what_may_have_been_claimed_is_asked_for_alone_until_it_is_known() -> None:
    """Its second refusal is no proof either: that is not of the sending which may have claimed."""
    database, slots = Database([IN_DOUBT, NOTHING], [REFUSED], [NOTHING], [NOTHING, NOTHING]), Free(A, B)
    one = dispatcher(database, slots)
    for _ in range(4):
        await one._tick()
    assert database.asked == [(A, B), (A,), (A,), (A, B)]
    assert slots.heard_of == [(B,), (A,), (A, B)]
    assert slots.given_back == []


@pytest.mark.parametrize("unknown", [True, False])
async def test_a_call_that_failed_is_repeated_as_it_was_if_it_may_have_claimed(unknown: bool) -> None:
    lost, away = Unavailable("lost", outcome_unknown=unknown), Unavailable("away")
    database, slots = Database(lost, away, [NOTHING]), Free(A)
    one = dispatcher(database, slots)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await one._tick()
    await one._tick()
    assert database.asked == [(A,)] * 3
    assert slots.given_back == ([] if unknown else [A, A])
    assert slots.heard_of == [(A,)]


async def test_what_is_still_in_doubt_a_while_after_closing_is_left_to_its_lease() -> None:
    database, slots = Database([IN_DOUBT, NOTHING], [REFUSED]), Free(A, B)
    one = dispatcher(database, slots)
    await one._tick()
    one.close()
    one._give_up_at = 0.0
    await one._tick()
    assert await one._tick() is None
    assert database.asked == [(A, B), (A,)]
    assert slots.heard_of == [(B,), (A,)]


async def test_what_was_planned_while_it_was_told_to_stop_is_not_claimed() -> None:
    database, slots = Database(), Free(A, B)
    slots.go.clear()
    one = dispatcher(database, slots)
    one.loop.start()
    await asyncio.sleep(0)
    one.close()
    slots.go.set()
    async with asyncio.timeout(60):
        await one.loop.wait()
    assert database.asked == []
    assert slots.given_back == [A, B]

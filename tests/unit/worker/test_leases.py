"""Leases are kept with one alarm for all of them, which rings for the one that ends first."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluicegate.model import Claim, Heartbeat, Job
from sluicegate.ops import requests
from sluicegate.worker.events import Tally
from sluicegate.worker.leases import HeldLease, LeaseKeeper, ServerClock

LENGTH = 600.0


class Renewing:
    """Of a client, the only verb that a keeper needs: it renews whatever it is asked for."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def heartbeat_many(self, claims: list[Claim], **_: Any) -> tuple[Heartbeat, ...]:
        requests.heartbeat_many(claims, lease_seconds=None, shorten=False, scope="endpoint:default")
        self.asked.set()
        now = datetime.now(UTC)
        return tuple(Heartbeat(one.job_id, "ok", now, now + timedelta(seconds=LENGTH)) for one in claims)


class Holder:
    def __init__(self, number: int, *, renewed: float = 0.0, ends: float = LENGTH) -> None:
        """Of job ``number``: a lease that was renewed, and ends, so many seconds from now."""
        now = time.monotonic()
        job = Job(number, "q", f"kind{number}", "", None, 10, (), None, 1, 5)
        claim = Claim(job, number, 1, 1, (), f"token{number}", datetime.now(UTC))
        self.lease = HeldLease(claim, LENGTH, now + renewed, now + ends, self)
        self.lost: list[str] = []
        self.heard = asyncio.Event()

    def lease_lost(self, why: str) -> None:
        self.lost.append(why)
        self.heard.set()

    def job_cancelled(self) -> None:
        raise AssertionError("nobody has cancelled it")

    def lease_renewed(self) -> None:
        self.heard.set()


async def heard(one: Holder) -> None:
    async with asyncio.timeout(60):
        await one.heard.wait()


@pytest.fixture
async def client() -> Renewing:
    return Renewing()


@pytest.fixture
async def keeper(client: Any) -> LeaseKeeper:
    return LeaseKeeper(
        client,
        None,
        tally=Tally(None, lambda: None),
        clock=ServerClock(),
        on_answer=lambda: None,
    )


async def test_the_alarm_ends_what_has_run_out_and_waits_for_the_next(keeper: LeaseKeeper) -> None:
    late, later, over = Holder(1), Holder(2, ends=2 * LENGTH), Holder(3, ends=0)
    for one in (later, late, over):
        keeper.hold(one.lease)
    await heard(over)
    assert len(over.lost) == 1
    assert (late.lost, later.lost) == ([], [])
    assert [keeper.holds(one.lease.claim) for one in (over, late, later)] == [False, True, True]
    assert keeper._alarm_at == late.lease.farewell_at
    keeper.drop(late.lease.claim)
    keeper._ring()
    assert later.lost == []
    assert keeper._alarm_at == later.lease.farewell_at


async def test_a_lease_that_ends_sooner_than_the_others_sets_the_alarm_forward(keeper: LeaseKeeper) -> None:
    late, soon = Holder(1), Holder(2, ends=LENGTH / 2)
    keeper.hold(late.lease)
    keeper.hold(soon.lease)
    assert keeper._alarm_at == soon.lease.farewell_at


async def test_the_alarm_rings_for_nothing_when_the_lease_was_renewed(keeper: LeaseKeeper) -> None:
    one = Holder(1)
    keeper.hold(one.lease)
    one.lease.ends_at += LENGTH
    keeper._ring()
    assert one.lost == []
    assert keeper._alarm_at == one.lease.farewell_at


async def test_what_has_ended_is_told_nothing_and_stays_until_its_finish_is_answered(keeper: LeaseKeeper) -> None:
    ended = Holder(1, ends=0)
    ended.lease.holder = None
    keeper.hold(ended.lease)
    keeper._ring()
    assert ended.lost == []
    assert ended.lease.claim.attempt_id in keeper._held
    assert keeper._alarm is None


async def test_a_job_that_is_claimed_again_has_lost_its_first_lease(keeper: LeaseKeeper) -> None:
    first, second = Holder(1), Holder(1)
    second.lease.claim = Claim(first.lease.claim.job, 2, 2, 2, (), "another", datetime.now(UTC))
    keeper.hold(first.lease)
    keeper.hold(second.lease)
    assert first.lost == ["The lease ran out, and the job was claimed again."]
    assert keeper.holds(second.lease.claim)


async def test_an_alarm_that_comes_late_says_for_how_long_the_event_loop_stood_still_and_who_runs(
    keeper: LeaseKeeper,
) -> None:
    over = Holder(1, ends=-5)
    others = [Holder(number) for number in range(2, 6)]
    for one in (over, *others):
        keeper.hold(one.lease)
    await heard(over)
    assert "the worker's event loop stood still for more than " in over.lost[0]
    assert "Running here: q/kind1, q/kind2, q/kind3 and 2 more." in over.lost[0]


async def test_a_lease_that_is_due_before_all_others_is_renewed_at_once(keeper: LeaseKeeper, client: Renewing) -> None:
    keeper.loop.start()
    keeper.hold(Holder(1).lease)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not client.asked.is_set(), "nothing is due"
    due = Holder(2, renewed=-LENGTH / 2)
    keeper.hold(due.lease)
    await heard(due)
    assert due.lost == []
    assert due.lease.due_at > time.monotonic()
    await keeper.loop.stop()


async def test_more_leases_than_fit_one_call_are_renewed_in_several(keeper: LeaseKeeper) -> None:
    keeper.loop.start()
    # What is due last was held first: it would be in every call if those that are due sooner were not taken before it.
    late = [Holder(number) for number in range(1, 6)]
    due = [Holder(number, renewed=-LENGTH / 2) for number in range(6, requests.MAX_JOBS + 7)]
    for one in (*late, *due):
        keeper.hold(one.lease)
    for one in due:
        await heard(one)
    assert not any(one.lost for one in (*late, *due))
    await keeper.loop.stop()


async def test_what_ended_before_its_lease_did_has_not_lost_it_though_nobody_could_tell_it_to_end(
    keeper: LeaseKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.worker.leases._FAREWELL_MOST", LENGTH)
    monkeypatch.setattr("sluicegate.worker.leases._FAREWELL_SHARE", 1.0)
    in_time, too_late = Holder(1, ends=LENGTH / 2), Holder(2, ends=-5)
    for one in (in_time, too_late):
        keeper.hold(one.lease)
    assert in_time.lease.farewell_at < time.monotonic()
    assert not keeper.has_run_out(in_time.lease.claim)
    assert keeper.has_run_out(too_late.lease.claim)
    assert "the worker's event loop stood still" in too_late.lost[0]

"""Keeping leases: heartbeats for every job that is held, in one call, and an end by our own clock without them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sluicegate.client import Client
from sluicegate.errors import Unavailable
from sluicegate.model import Claim, Heartbeat
from sluicegate.ops.requests import MAX_JOBS
from sluicegate.worker.events import Tally
from sluicegate.worker.loop import Loop, Pace

# What runs is told to end so long before its lease does: a tenth of the lease, at most a second.
_FAREWELL_SHARE = 0.1
_FAREWELL_MOST = 1.0
_HEARTBEATS_A_LEASE = 3
# How long an answer to a heartbeat is waited for, in seconds: a third of the lease within these.
_PATIENCE = (1.0, 10.0)
# A job that another transaction held is asked for again so soon: a twentieth of the lease, at most half a second.
_AGAIN_SHARE = 0.05
_AGAIN_MOST = 0.5
_NEVER = float("inf")
# An alarm that rings so late, in seconds, was kept from it.
_STOOD_STILL = 0.5
_MOST_NAMED = 3


class ServerClock:
    """The database's clock, as far as its answers tell it; the clock of this machine only measures what passes between."""

    def __init__(self) -> None:
        self._known = (datetime.now(UTC), time.monotonic())

    def heard(self, server_time: datetime) -> None:
        self._known = (server_time, time.monotonic())

    def now(self) -> datetime:
        return self.at(time.monotonic())

    def at(self, moment: float) -> datetime:
        """What it shows at a ``moment`` of ``time.monotonic()``."""
        known, heard_at = self._known
        return known + timedelta(seconds=moment - heard_at)


class LeaseHolder(Protocol):
    """What is told of its lease for as long as it runs."""

    def lease_lost(self, why: str) -> None: ...
    def job_cancelled(self) -> None: ...
    def lease_renewed(self) -> None: ...


@dataclass(slots=True, eq=False)
class HeldLease:
    """A lease by the monotonic clock of this machine: it certainly holds until ``ends_at``.

    Counted from the moment before the call that granted it was sent, so the database cannot think it over earlier.
    """

    claim: Claim
    length: float
    renewed_at: float
    ends_at: float
    # None when it has ended: what holds the lease holds each other no longer, and goes without the garbage collector.
    holder: LeaseHolder | None = field(repr=False)
    cancelled: bool = False
    finish_sent: bool = False
    again_at: float | None = None

    @property
    def farewell_at(self) -> float:
        """When what runs under this lease has to be told to end, so that it is over when the lease is."""
        return self.ends_at - min(_FAREWELL_MOST, self.length * _FAREWELL_SHARE)

    @property
    def due_at(self) -> float:
        """When the next heartbeat should be sent: a third of the lease after it was last renewed, or at ``again_at``."""
        return self.again_at if self.again_at is not None else self.renewed_at + self.length / _HEARTBEATS_A_LEASE


class LeaseKeeper:
    """Renews the leases of all held jobs; tells each job that was cancelled, or whose lease is lost.

    ``on_answer`` is called after each heartbeat, answered or not.
    """

    def __init__(
        self,
        client: Client,
        lease_seconds: int | None,
        *,
        tally: Tally,
        clock: ServerClock,
        on_answer: Callable[[], None],
    ) -> None:
        self._client = client
        self._lease_seconds = lease_seconds
        self._clock = clock
        # By attempt: a job may be claimed again here while its first attempt, whose lease has run out, still ends.
        self._held: dict[int, HeldLease] = {}
        # Of each job, its latest attempt.
        self._attempts: dict[int, int] = {}
        self._asking: frozenset[int] = frozenset()
        # One alarm for all, for the lease that ends first; and when the loop will look next by itself.
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = _NEVER
        self._next_at = _NEVER
        self._tally = tally
        self._on_answer = on_answer
        self.loop = Loop(self._tick, away=tally.database_away, backoff=Pace(0.1, 1.0))

    def hold(self, lease: HeldLease) -> None:
        """Keep the lease until ``drop``. One that was held for the same job is lost: else it could not be claimed."""
        before = self._held.get(self._attempts.get(lease.claim.job_id, 0))
        self._held[lease.claim.attempt_id] = lease
        self._attempts[lease.claim.job_id] = lease.claim.attempt_id
        if lease.farewell_at < self._alarm_at:
            self._set_alarm(lease.farewell_at)
        if lease.due_at < self._next_at:
            self.loop.wake()
        if before is not None:
            self.drop(before.claim)
            if before.holder is not None:
                before.holder.lease_lost("The lease ran out, and the job was claimed again.")

    def drop(self, claim: Claim) -> None:
        """The attempt has ended, one way or the other."""
        self._held.pop(claim.attempt_id, None)
        if self._attempts.get(claim.job_id) == claim.attempt_id:
            del self._attempts[claim.job_id]

    def has_run_out(self, claim: Claim) -> bool:
        """Of what has ended: whether the lease ran out while the event loop stood still, so that the alarm could not tell its
        holder. One that should have been told to end, and ended in time without, is in time: its token decides."""
        if self.holds(claim) or time.monotonic() < self._alarm_at:
            return False
        self._ring()
        return claim.attempt_id not in self._held

    def finishing(self, claim: Claim, *, sent: bool) -> None:
        """A finish is on its way (or has come back unanswered): a heartbeat beside it would look like one too late."""
        if claim.attempt_id in self._held:
            self._held[claim.attempt_id].finish_sent = sent

    def is_asking(self, claim: Claim) -> bool:
        """Whether a heartbeat for the attempt is on its way; a finish should wait for ``on_answer``."""
        return claim.attempt_id in self._asking

    def holds(self, claim: Claim) -> bool:
        """Whether the lease still certainly holds."""
        lease = self._held.get(claim.attempt_id)
        return lease is not None and lease.ends_at > time.monotonic()

    def _set_alarm(self, moment: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        loop = asyncio.get_running_loop()
        self._alarm_at = moment
        self._alarm = loop.call_at(loop.time() + moment - time.monotonic(), self._ring)

    def _ring(self) -> None:
        """End what has run out. A renewed lease leaves the alarm as it is, which then rings for nothing, and is set anew."""
        now = time.monotonic()
        late = now - self._alarm_at
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, _NEVER
        over = [lease for lease in self._held.values() if lease.farewell_at <= now]
        why = self._why_run_out(late)
        for lease in over:
            # Of what has ended, the finish may still be in time. What still runs does so in vain: nobody should wait for it.
            if lease.holder is not None:
                self.drop(lease.claim)
                lease.holder.lease_lost(why)
        first = min((lease.farewell_at for lease in self._held.values() if lease.farewell_at > now), default=_NEVER)
        if first < self._alarm_at:
            self._set_alarm(first)

    def _why_run_out(self, late: float) -> str:
        if late < _STOOD_STILL:
            return "The lease ran out: no heartbeat reached the database in time."
        jobs = sorted(
            {
                f"{job.queue}/{job.kind}"
                for job in (held.claim.job for held in self._held.values() if held.holder is not None)
            }
        )
        more = f" and {len(jobs) - _MOST_NAMED} more" if len(jobs) > _MOST_NAMED else ""
        return (
            f"The lease ran out: the worker's event loop stood still for more than {late:.1f} s, so no heartbeat was sent. "
            f"Running here: {', '.join(jobs[:_MOST_NAMED])}{more}. If the process was not stopped, an async handler among them "
            "blocks the loop (time.sleep, a call that is not awaited): declare that one with def, and it gets a thread."
        )

    async def _tick(self) -> float:
        now = time.monotonic()
        self._next_at = _NEVER
        kept = [lease for lease in self._held.values() if not lease.finish_sent]
        due = [lease for lease in kept if lease.due_at <= now]
        if not due:
            self._next_at = min((lease.due_at for lease in kept), default=_NEVER)
            return self._next_at - now
        # Those that are nearly due go along with the first one; with one that is merely asked for again nobody does.
        if all(lease.again_at is not None for lease in due):
            kept = due
        if len(kept) > MAX_JOBS:
            # The others have the next call, which follows at once if they are due.
            kept = sorted(kept, key=lambda lease: lease.due_at)[:MAX_JOBS]
        least, most = _PATIENCE
        patience = min(max(least, min(lease.length for lease in kept) / _HEARTBEATS_A_LEASE), most)
        self._asking = frozenset(lease.claim.attempt_id for lease in kept)
        try:
            async with asyncio.timeout(patience):
                answers = await self._client.heartbeat_many(
                    [lease.claim for lease in kept], lease_seconds=self._lease_seconds
                )
        except TimeoutError:
            raise Unavailable(f"PostgreSQL did not answer a heartbeat within {patience:g} s.") from None
        finally:
            self._asking = frozenset()
            self._on_answer()
        self._tally.database_back()
        for lease, answer in zip(kept, answers, strict=True):
            if self._held.get(lease.claim.attempt_id) is lease:
                self._hear(lease, answer, now)
        return 0.0

    def _hear(self, lease: HeldLease, answer: Heartbeat, sent_at: float) -> None:
        self._clock.heard(answer.server_time)
        if answer.status == "unavailable":
            lease.again_at = time.monotonic() + min(_AGAIN_MOST, lease.length * _AGAIN_SHARE)
            return
        lease.again_at = None
        if answer.status != "ok" or answer.lease_expires_at is None:
            self.drop(lease.claim)
            if lease.holder is not None:
                lease.holder.lease_lost(answer.message or "The lease is not ours any more.")
            return
        lease.renewed_at = sent_at
        lease.ends_at = max(lease.ends_at, sent_at + (answer.lease_expires_at - answer.server_time).total_seconds())
        if lease.holder is None:
            return
        lease.holder.lease_renewed()
        if answer.cancelled and not lease.cancelled:
            lease.cancelled = True
            lease.holder.job_cancelled()

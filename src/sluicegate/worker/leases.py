"""Keeping leases: heartbeats for every job that is held, in one call, and an end by our own clock without them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sluicegate.client import Client
from sluicegate.errors import Unavailable
from sluicegate.model import Claim, Heartbeat
from sluicegate.worker.events import Tally
from sluicegate.worker.loop import Loop, Pace

# A command is told to end so long before its lease does: a tenth of the lease, at most a second.
_FAREWELL_SHARE = 0.1
_FAREWELL_MOST = 1.0
_HEARTBEATS_A_LEASE = 3
# How long an answer to a heartbeat is waited for, in seconds: a third of the lease within these.
_PATIENCE = (1.0, 10.0)
# A job that another transaction held is asked for again so soon: a twentieth of the lease, at most half a second.
_AGAIN_SHARE = 0.05
_AGAIN_MOST = 0.5


class ServerClock:
    """The database's clock, as far as its answers tell it; the clock of this machine only measures what passes between."""

    def __init__(self) -> None:
        self._known = (datetime.now(UTC), time.monotonic())

    def heard(self, server_time: datetime) -> None:
        self._known = (server_time, time.monotonic())

    def now(self) -> datetime:
        moment, heard_at = self._known
        return moment + timedelta(seconds=time.monotonic() - heard_at)


@dataclass(slots=True, eq=False)
class HeldLease:
    """A lease by the monotonic clock of this machine: it certainly holds until ``ends_at``.

    Counted from the moment before the call that granted it was sent, so the database cannot think it over earlier.
    """

    claim: Claim
    length: float
    renewed_at: float
    ends_at: float
    on_lost: Callable[[str], None] = field(repr=False)
    on_cancelled: Callable[[], None] = field(repr=False)
    on_renewed: Callable[[], None] = field(repr=False)
    cancelled: bool = False
    running: bool = True
    finish_sent: bool = False
    again_at: float | None = None
    alarm: asyncio.TimerHandle | None = None

    @property
    def farewell_at(self) -> float:
        """When a command under this lease has to be told to end, so that it is over when the lease is."""
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
        self._tally = tally
        self._on_answer = on_answer
        self.loop = Loop(self._tick, away=tally.database_away, backoff=Pace(0.1, 1.0))

    def hold(self, lease: HeldLease) -> None:
        """Keep the lease until ``drop``. One that was held for the same job is lost: else it could not be claimed."""
        before = self._held.get(self._attempts.get(lease.claim.job_id, 0))
        self._held[lease.claim.attempt_id] = lease
        self._attempts[lease.claim.job_id] = lease.claim.attempt_id
        self._set_alarm(lease)
        self.loop.wake()
        if before is not None:
            self.drop(before.claim)
            before.on_lost("The lease ran out, and the job was claimed again.")

    def drop(self, claim: Claim) -> None:
        """The attempt has ended, one way or the other."""
        lease = self._held.pop(claim.attempt_id, None)
        if self._attempts.get(claim.job_id) == claim.attempt_id:
            del self._attempts[claim.job_id]
        if lease is not None and lease.alarm is not None:
            lease.alarm.cancel()

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

    def _set_alarm(self, lease: HeldLease) -> None:
        if lease.alarm is not None:
            lease.alarm.cancel()
        loop = asyncio.get_running_loop()
        lease.alarm = loop.call_at(loop.time() + lease.farewell_at - time.monotonic(), self._run_out, lease)

    def _run_out(self, lease: HeldLease) -> None:
        if self._held.get(lease.claim.attempt_id) is lease:
            # Of what has ended, the finish may still be in time. What still runs does so in vain: nobody should wait for it.
            if lease.running:
                self.drop(lease.claim)
            lease.on_lost("The lease ran out: no heartbeat reached the database in time.")

    async def _tick(self) -> float:
        now = time.monotonic()
        kept = [lease for lease in self._held.values() if not lease.finish_sent]
        due = [lease for lease in kept if lease.due_at <= now]
        if not due:
            return min((lease.due_at - now for lease in kept), default=float("inf"))
        # Those that are nearly due go along with the first one; with one that is merely asked for again nobody does.
        if all(lease.again_at is not None for lease in due):
            kept = due
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
            lease.on_lost(answer.message or "The lease is not ours any more.")
            return
        lease.renewed_at = sent_at
        lease.ends_at = max(lease.ends_at, sent_at + (answer.lease_expires_at - answer.server_time).total_seconds())
        self._set_alarm(lease)
        lease.on_renewed()
        if answer.cancelled and not lease.cancelled:
            lease.cancelled = True
            lease.on_cancelled()

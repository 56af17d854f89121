"""The slots of a worker, shared over its queues: who deserves the free ones gets permits, and claims with them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from sluicegate.client import Client
from sluicegate.model import Claim, ClaimAnswer, ClaimRequest, Demand, QueueDemand
from sluicegate.model.health import HardReserved, QueueHealth, Weighted
from sluicegate.model.pool import Contender, Debts, grants, shares
from sluicegate.ops.requests import MAX_REQUESTS
from sluicegate.worker import parking
from sluicegate.worker.capacity import Capacity
from sluicegate.worker.loop import Lookout, Pace
from sluicegate.worker.permits import Permit, Permits
from sluicegate.worker.rates import Rate
from sluicegate.worker.rests import Rests
from sluicegate.worker.slots import FOREVER, Plan

_IDLE = 0.05
# Peers that are at the same rows are gone in a moment.
_BUSY = (0.02, 0.2)
_MOST_JOBS = 1000
_LEAST_BATCH = 50
# For how long, in seconds, what was seen of several queues is acted upon without another look.
_FRESH = 0.05
# And of the only queue: what it says of itself is seldom older.
_STALE = 1.0
_UNLIMITED = 10_000

Start = Callable[[Claim, Permit, float, float], None]


class SharedSlots:
    """Asks the database what each queue could start, shares the free slots out, and claims what was granted.

    ``poll`` is the longest it waits, in seconds, before it looks for jobs by itself; only while it ``hears`` of changes it
    leaves closed queues alone for longer. With ``drain`` it ends when nothing runs and nothing can be started. While
    ``rest`` says so, in seconds, it starts nothing.
    """

    def __init__(
        self,
        client: Client,
        capacity: Capacity,
        start: Start,
        *,
        lease_seconds: int | None = None,
        poll: float = 1.0,
        drain: bool = False,
        woken: Callable[[], None] = lambda: None,
        seen: Callable[[Demand], None] = lambda _: None,
        rest: Callable[[], float] = lambda: 0.0,
        hears: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._capacity = capacity
        self._start = start
        self._lease_seconds = lease_seconds
        self._drain = drain
        self._woken = woken
        self._told = seen
        self._rest = rest
        self._permits = Permits(self._released)
        self._asked: dict[str, list[Permit]] = {}
        self._debts = Debts()
        self._served: Counter[str] = Counter()
        self._turn = 0
        self._seen: dict[str, QueueDemand] = {}
        self._asked_at = float("-inf")
        # The queues whose last claim brought all that was asked for.
        self._more: set[str] = set()
        self._news = False
        self._sure = True
        self._sent_at = 0.0
        self._unreported: Mapping[str, int] = {}
        self._turns: dict[str, float] = {}
        self._rests = Rests()
        self._last_claim: dict[str, datetime] = {}
        self._lookout = Lookout(Pace(min(_IDLE, poll), poll), hears, poll)
        self._busy = Pace(*_BUSY)
        now = time.monotonic()
        self._rates = {
            queue: Rate(config.rate_per_second, config.burst or 1, now)
            for queue, config in capacity.queues.items()
            if config.rate_per_second is not None
        }

    @property
    def running(self) -> int:
        return self._permits.total - sum(map(len, self._asked.values()))

    async def plan(self, finishing: Mapping[str, int], unreported: Mapping[str, int]) -> Plan:
        if self._rest() > 0:
            return Plan(wait=self._rest())
        self._unreported = unreported
        ending = self._drain and self._permits.total == 0 and not finishing
        now = time.monotonic()
        resting = self._rests.left(now)
        able = [queue for queue in self._capacity.queues if self._room(queue) > 0 and queue not in resting]
        if not able:
            return Plan(wait=min(resting.values(), default=FOREVER))
        if likely := self._likely(able, finishing):
            return self._ask(likely, sure=False)
        self._asked_at = time.monotonic()
        # Counted to one more than there are slots for: so it is known whether any are left when those have been claimed.
        demand = await self._client.demand(*able, most=min(max(map(self._room, able)) + 1, 10_000))
        # Of queues that have no room what was seen last stays; those that rest do not compete.
        seen = {queue: entry for queue, entry in self._seen.items() if queue not in resting}
        seen |= {entry.queue: _with_room(entry, finishing.get(entry.queue, 0)) for entry in demand.queues}
        self._seen = seen
        self._told(demand)
        granted = Counter(self._grants())
        if not granted:
            if ending and not resting and not any(entry.ready for entry in demand.queues):
                return Plan(wait=None)
            return Plan(wait=min(self._wait(demand), *resting.values()) if resting else self._wait(demand))
        return self._ask(granted, sure=True)

    def _likely(self, able: Sequence[str], finishing: Mapping[str, int]) -> dict[str, int]:
        """What to claim without asking first what waits. A queue that shares its slots with no other has nothing to
        be weighed against: it has more if its last claim was filled, and may have where one of its jobs ends, or after
        news; then the claim itself finds out. Other queues are not kept waiting by it for long."""
        news, self._news = self._news, False
        alone = len(self._capacity.queues) == 1
        age = time.monotonic() - self._asked_at
        if age > (_FRESH if not alone else FOREVER if news else _STALE) or not (alone or self._capacity.pool is None):
            return {}
        found = {}
        for queue in able:
            room = min(self._room(queue), self._tokens(queue))
            n = room if queue in self._more or (alone and news) else min(room, finishing.get(queue, 0))
            if n > 0:
                found[queue] = n
        return found

    def _ask(self, numbers: Mapping[str, int], *, sure: bool) -> Plan:
        """Take permits for so many jobs of each queue, no more than half of all slots for one: so there is the next
        call to send while the jobs of this one begin and end."""
        self._sure = sure
        most = min(_MOST_JOBS, max(_LEAST_BATCH, -(-self._capacity.slots // 2)))
        asks = []
        now = time.monotonic()
        for queue in sorted(numbers, key=lambda name: self._turns.get(name, 0.0))[:MAX_REQUESTS]:
            n = min(numbers[queue], most)
            self._turns[queue] = self._sent_at = now
            self._asked.setdefault(queue, []).extend(self._permits.take(queue) for _ in range(n))
            if queue in self._rates:
                self._rates[queue].take(n)
            if queue in self._seen:
                self._seen[queue] = _without(self._seen[queue], n)
            asks.append(ClaimRequest((queue,), n, self._lease_seconds, uuid4().hex))
        self._note()
        return Plan(tuple(asks))

    def start(self, claim: Claim, *, sent_at: float, length: float) -> None:
        self._start(claim, self._asked[claim.job.queue].pop(), sent_at, length)

    def heard(self, asks: Sequence[ClaimRequest], answers: Sequence[ClaimAnswer], *, idle: bool) -> float:  # noqa: ARG002
        now = time.monotonic()
        for ask, answer in zip(asks, answers, strict=True):
            queue = ask.queues[0]
            self._give_back(ask, min(ask.n, len(answer.claims)))
            (self._more.add if len(answer.claims) >= ask.n else self._more.discard)(queue)
            if answer.error is not None:
                self._rests.failed(queue, sent_at=self._sent_at, now=now)
            elif answer.held:
                self._rests.held(queue, now)
            else:
                self._rests.answered(queue)
            if answer.claims:
                self._last_claim[queue] = answer.server_time
        in_the_way = any(answer.busy and not answer.held for answer in answers)
        if not in_the_way:
            self._busy.reset()
        if any(answer.claims for answer in answers):
            self._lookout.found()
            return 0.0
        if in_the_way:
            return self._lookout.wait(self._busy.next())
        # What was ready has gone to others, or its queue has closed. What was only likely is looked for now.
        return self._lookout.wait() if self._sure else 0.0

    def dropped(self, asks: Sequence[ClaimRequest]) -> None:
        for ask in asks:
            self._give_back(ask, 0)

    def look(self, *, opened: bool = False) -> None:
        self._news = True
        self._rests.news(time.monotonic(), opened=opened)
        self._lookout.news()

    def _give_back(self, ask: ClaimRequest, used: int) -> None:
        """What the answer did not need: permits, and tokens of the rate."""
        queue = ask.queues[0]
        left = self._asked.pop(queue, [])
        if queue in self._rates:
            self._rates[queue].give_back(ask.n - used)
        for permit in left:
            permit.release()

    def _room(self, queue: str) -> int:
        """How many more slots the queue would have if it got all that are free."""
        room = self._capacity.most(queue) - self._held(queue)
        if self._capacity.pool is None:
            return room
        return min(room, self._capacity.pool - self._permits.total - sum(self._unreported.values()))

    def _held(self, queue: str) -> int:
        """What the database counts as running here, or soon will."""
        return self._permits.held(queue) + self._unreported.get(queue, 0)

    def _tokens(self, queue: str) -> int:
        """How many jobs its rate lets the queue start now."""
        return self._rates[queue].available(time.monotonic()) if queue in self._rates else _UNLIMITED

    def _contenders(self) -> list[Contender]:
        found = []
        for queue in self._capacity.queues:
            ready = min(self._seen[queue].ready, self._tokens(queue)) if queue in self._seen else 0
            found.append(
                replace(
                    self._capacity.contender(queue),
                    running=self._held(queue),
                    ready=ready,
                    owed=self._debts.owed(queue),
                    served=self._served[queue],
                )
            )
        return found

    def _grants(self) -> list[str]:
        if self._capacity.pool is None:
            return [
                one.queue
                for one in self._contenders()
                for _ in range(min(one.ready, self._capacity.most(one.queue) - one.running))
            ]
        self._note()
        granted = grants(self._capacity.pool, self._contenders(), span=self._debts.span or 1.0)
        for queue in granted:
            self._turn += 1
            self._served[queue] = self._turn
        return granted

    def _note(self) -> None:
        """What the queues have and deserve from now on."""
        if self._capacity.pool is not None:
            self._debts.see(time.monotonic(), self._capacity.pool, self._contenders())

    def _released(self, permit: Permit) -> None:
        self._debts.held(time.monotonic() - permit.taken_at)
        self._note()
        self._woken()

    def _wait(self, demand: Demand) -> float:
        """How long until something may have changed that nobody tells."""
        now = demand.server_time
        waits: list[float] = []
        sure = True
        for entry in demand.queues:
            if entry.reason is not None:
                shut = parking.closed(entry, now)
                sure &= shut is not None
                waits += [] if shut is None else [shut]
            elif entry.ready and self._tokens(entry.queue) == 0:
                waits.append(self._rates[entry.queue].wait(time.monotonic()))
            else:
                sure = False
                waits += [] if entry.next_due_at is None else [parking.until(entry.next_due_at, now)]
        return self._lookout.wait(min(waits)) if sure else min([self._lookout.wait(), *waits])

    def health(self) -> list[QueueHealth]:
        """How each queue is, in the order they were set."""
        contenders = self._contenders()
        deserved = shares(self._capacity.slots, contenders) if self._capacity.pool is not None else {}
        return [self._health(one, deserved.get(one.queue)) for one in contenders]

    def _health(self, one: Contender, deserved: float | None) -> QueueHealth:
        seen, config = self._seen.get(one.queue), self._capacity.queues[one.queue]
        most = self._capacity.most(one.queue)
        room = max(0, self._room(one.queue))
        waits_for = None
        if seen is not None and seen.waiting > 0:
            limited = self._tokens(one.queue) == 0
            capped = (self._capacity.pool is None or one.cap is not None) and one.running >= most
            waits_for = seen.reason or ("cap" if capped else "rate" if limited else "pool" if room == 0 else None)
        return QueueHealth(
            queue=one.queue,
            capacity=HardReserved(max_workers=most)
            if self._capacity.pool is None
            else Weighted(
                min_workers=one.floor,
                weight=one.weight,
                max_workers=one.cap,
                overflow_held=max(0, one.running - one.floor),
            ),
            running=one.running,
            available=room,
            demand=one.demand,
            share=float(min(one.demand, most) if deserved is None else deserved),
            rate_per_second=config.rate_per_second,
            last_claim_at=self._last_claim.get(one.queue),
            waits_for=waits_for,
        )


def _with_room(entry: QueueDemand, finishing: int) -> QueueDemand:
    """What could start when so many of the queue's own jobs have ended."""
    limited = entry.reason == "in_flight_full" or (entry.reason is None and entry.ready < entry.waiting)
    return replace(entry, ready=min(entry.waiting, entry.ready + finishing)) if limited and finishing else entry


def _without(entry: QueueDemand, claimed: int) -> QueueDemand:
    """What is left of it when so many have been claimed, as far as all of it was counted."""
    if not entry.waiting_exact:
        return entry
    return replace(entry, ready=max(0, entry.ready - claimed), waiting=max(0, entry.waiting - claimed))

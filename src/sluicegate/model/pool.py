"""Who gets the slots of a worker's pool: weighted max-min over usable demand. Pure: no clock, no I/O.

A queue's *usable demand* is what it runs and what it could start now: claimable jobs of an open queue, no more than its
rate and its limits let through. ``shares`` is what each queue deserves of the pool at this moment, ``grants`` who gets the
slots that are free, one after the other. Nobody is interrupted: a queue above its share gets nothing until it is below.

    level     one number for all queues; each deserves level x weight, at least its floor, at most its cap, both within
              its demand; the level is the one at which the pool, or else the demand, is used up
    floor     lent to others while its queue has no demand, and the first thing that is given back; with ``lends`` False it
              is kept free instead
    owed      slot-seconds that a queue got less (or, negative, more) than it deserved while it competed; it decides who
              gets the part of a slot that a share cannot be cut into, so that two queues take turns at one slot
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

# A queue that does not compete forgets what it owes by half in so many seconds.
_FORGETS = 60.0
# By how much of the longest job what is owed weighs as much as a slot that is held.
_PATIENCE = 4.0
_EXACT = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One queue of a pool: its settings, ``running`` slots it holds, ``ready`` jobs that it could start now.

    ``weight`` is at least 1, ``floor`` at most ``cap`` (None: no cap of its own). ``served`` orders those that deserve
    a slot equally: the number of the grant in which it last got one.
    """

    queue: str
    weight: int = 1
    floor: int = 0
    cap: int | None = None
    lends: bool = True
    running: int = 0
    ready: int = 0
    owed: float = 0.0
    served: int = 0

    @property
    def demand(self) -> int:
        """How many slots it can use. What it holds counts, also above its cap: it is not taken away."""
        wanted = self.running + self.ready
        return max(self.running, wanted if self.cap is None else min(wanted, self.cap))

    @property
    def least(self) -> int:
        """How many of them its floor promises it."""
        return min(self.floor, self.demand)

    @property
    def kept(self) -> int:
        """Slots that stay free for it though it has no use for them."""
        return 0 if self.lends else max(0, self.floor - self.demand)


def shares(capacity: int, contenders: Sequence[Contender]) -> dict[str, float]:
    """What each queue deserves of ``capacity`` slots, as an exact number: the sum is all that can be used.

    A queue that has no demand deserves nothing, and the others deserve the same as if it were not there.
    """
    # In one order, so that sums are rounded the same way whoever is asked for first; without those that want nothing.
    wanting = sorted((one for one in contenders if one.demand), key=lambda one: one.queue)
    level = _level(capacity - sum(one.kept for one in contenders), wanting)
    return {one.queue: _at(level, one) for one in contenders}


def _at(level: float, one: Contender) -> float:
    return min(max(level * one.weight, one.least), one.demand)


def _level(room: int, contenders: Sequence[Contender]) -> float:
    """The level at which ``room`` slots are used up; infinite when there is enough for everybody."""
    if sum(one.demand for one in contenders) <= room:
        return math.inf
    # Between two of these levels nobody reaches a bound, so that what is used is a straight line.
    bends = sorted({bound / one.weight for one in contenders for bound in (one.least, one.demand)})
    at = bisect_left(bends, True, key=lambda bend: sum(_at(bend, one) for one in contenders) >= room)
    below = bends[at - 1] if at else 0.0
    used = sum(_at(below, one) for one in contenders)
    slope = sum(one.weight for one in contenders if one.least <= below * one.weight < one.demand)
    return below if slope == 0 else below + max(0.0, room - used) / slope


def grants(capacity: int, contenders: Iterable[Contender], *, span: float = 1.0) -> list[str]:
    """The queues that get the free slots, in their order; a queue as often as it gets one.

    First those below their floor, then those below their share in the order of what they deserve, and then, so that no
    slot stays free while somebody could use it, whoever can. ``span`` is how long a long job of this pool holds its slot,
    in seconds. The answer does not depend on the order of ``contenders``.
    """
    known = {one.queue: one for one in contenders}
    deserved = shares(capacity, tuple(known.values()))
    free = capacity - sum(one.running for one in known.values())
    reserved = {one.queue: max(0, one.floor - one.running) for one in known.values() if not one.lends}
    waiting = [
        (*_turn(one, deserved[one.queue], span), one.queue) for one in known.values() if one.running < one.demand
    ]
    heapq.heapify(waiting)
    turn = max((one.served for one in known.values()), default=0)
    given: list[str] = []
    while free > 0 and waiting:
        queue = heapq.heappop(waiting)[-1]
        if reserved.get(queue, 0) > 0:
            reserved[queue] -= 1
        elif free <= sum(reserved.values()):
            continue
        turn += 1
        one = known[queue] = replace(
            known[queue], running=known[queue].running + 1, ready=known[queue].ready - 1, served=turn
        )
        given.append(queue)
        free -= 1
        if one.running < one.demand:
            heapq.heappush(waiting, (*_turn(one, deserved[queue], span), queue))
    return given


def _turn(one: Contender, deserved: float, span: float) -> tuple[int, float, int]:
    """The place of a queue among those that wait for a slot: smaller is first."""
    if one.running < one.least:
        stage = 0
    elif one.running + _EXACT < deserved:
        stage = 1
    else:
        stage = 2
    return stage, (one.running + 1 - one.owed * _PATIENCE / span) / one.weight, one.served


class Debts:
    """What the queues of a pool owe each other, remembered while they compete. Times are seconds of any steady clock."""

    def __init__(self) -> None:
        self.span = 0.0
        self._owed: dict[str, float] = {}
        self._at: float | None = None
        self._deserved: Mapping[str, float] = {}
        self._running: Mapping[str, int] = {}
        self._competing: frozenset[str] = frozenset()

    def owed(self, queue: str) -> float:
        return self._owed.get(queue, 0.0)

    def held(self, seconds: float) -> None:
        """A job has held its slot for so long. Long jobs are forgotten slowly, as shorter ones end."""
        self.span = max(seconds, self.span * 0.99)

    def see(self, now: float, capacity: int, contenders: Sequence[Contender]) -> None:
        """Charge the time since the last call by what was seen then, and remember what is so from now on."""
        if self._at is not None:
            self._charge(max(0.0, now - self._at))
        self._at = now
        self._deserved = shares(capacity, contenders)
        self._running = {one.queue: one.running for one in contenders}
        self._competing = frozenset(one.queue for one in contenders if one.ready > 0)

    def _charge(self, seconds: float) -> None:
        most = 2 * max(self.span, _EXACT)
        # Of what was really used: a slot on its way from one job to the next is owed to nobody.
        competing = [queue for queue in self._deserved if queue in self._competing]
        deserved_by_all = sum(self._deserved[queue] for queue in competing)
        used = sum(self._running[queue] for queue in competing) / deserved_by_all if deserved_by_all else 0.0
        for queue, deserved in self._deserved.items():
            owed = self._owed.get(queue, 0.0)
            if queue in self._competing:
                owed += (deserved * used - self._running[queue]) * seconds
                self._owed[queue] = min(max(owed, -most), most)
            else:
                # Nobody saves up for later.
                self._owed[queue] = min(owed, 0.0) * 0.5 ** (seconds / _FORGETS)

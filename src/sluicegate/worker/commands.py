"""The slots of ``exec``: as many commands at once as it was told, whichever of its queues the jobs come from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4

from sluicegate.model import Claim, ClaimAnswer, ClaimRequest
from sluicegate.worker import parking
from sluicegate.worker.crew import Crew
from sluicegate.worker.events import Tally
from sluicegate.worker.loop import Lookout, Pace
from sluicegate.worker.rests import Rests
from sluicegate.worker.slots import FOREVER, Plan
from sluicegate.worker.terms import Terms

_IDLE = (0.05, 1.0)
# Peers are gone in a moment; a first policy that waits for a long transaction is not.
_BUSY = (0.02, 1.0)


class CommandSlots:
    """Asks for as many jobs as there are free slots in one claim over all queues but those that rest."""

    def __init__(self, crew: Crew, terms: Terms, tally: Tally, hears: Callable[[], bool]) -> None:
        self._crew = crew
        self._terms = terms
        self._tally = tally
        self._rests = Rests()
        self._lookout = Lookout(Pace(*_IDLE), hears, _IDLE[1])
        self._busy = Pace(*_BUSY)

    @property
    def running(self) -> int:
        return self._crew.running

    async def plan(self, finishing: Mapping[str, int], unreported: Mapping[str, int]) -> Plan:  # noqa: ARG002 - the claim carries the finishes
        free = self._terms.concurrency - self._crew.running - sum(unreported.values())
        if free <= 0 or self._crew.rest > 0:
            return Plan(wait=self._crew.rest or FOREVER)
        resting = self._rests.left(time.monotonic())
        queues = tuple(queue for queue in self._terms.queues if queue not in resting)
        if not queues:
            return Plan(wait=min(resting.values()))
        return Plan((ClaimRequest(queues, free, self._terms.lease_seconds, uuid4().hex),))

    def start(self, claim: Claim, *, sent_at: float, length: float) -> None:
        self._crew.start(claim, sent_at=sent_at, length=length)

    def heard(self, asks: Sequence[ClaimRequest], answers: Sequence[ClaimAnswer], *, idle: bool) -> float | None:
        (ask,), (answer,) = asks, answers
        now = time.monotonic()
        for queue in ask.queues:
            if queue in answer.held:
                self._rests.held(queue, now)
            else:
                self._rests.answered(queue)
        if answer.claims:
            self._lookout.found()
            self._busy.reset()
            return 0.0 if len(answer.claims) == ask.n else self._lookout.wait()
        if resting := self._rests.left(now):
            # What the others say is not all there is.
            return self._lookout.wait(min(*resting.values(), self._busy.next()))
        if answer.busy:
            return self._lookout.wait(self._busy.next())
        self._busy.reset()
        if self._terms.drain and not answer.replayed and idle:
            return None
        if answer.empty and idle:
            self._tally.waiting()
        # With nothing but closed queues there is nothing to look for until one of them opens.
        parked = parking.parked(answer, self._terms.queues) if answer.deferred else None
        return self._lookout.wait(parked)

    def dropped(self, asks: Sequence[ClaimRequest]) -> None:
        """Free slots are counted by what runs."""

    def look(self, *, opened: bool = False) -> None:
        self._rests.news(time.monotonic(), opened=opened)
        self._lookout.news()

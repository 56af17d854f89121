"""The slots of ``exec``: as many commands at once as it was told, whichever of its queues the jobs come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import uuid4

from sluicegate.model import Claim, ClaimAnswer, ClaimRequest
from sluicegate.worker import parking
from sluicegate.worker.crew import Crew
from sluicegate.worker.events import Tally
from sluicegate.worker.loop import Lookout, Pace
from sluicegate.worker.slots import FOREVER, Plan
from sluicegate.worker.terms import Terms

_IDLE = (0.05, 1.0)
# Peers are gone in a moment; a first policy that waits for a long transaction is not.
_BUSY = (0.02, 1.0)


class CommandSlots:
    """Asks for as many jobs as there are free slots in one claim over all queues."""

    def __init__(self, crew: Crew, terms: Terms, tally: Tally) -> None:
        self._crew = crew
        self._terms = terms
        self._tally = tally
        self._lookout = Lookout(Pace(*_IDLE))
        self._busy = Pace(*_BUSY)

    @property
    def running(self) -> int:
        return self._crew.running

    async def plan(self, finishing: Mapping[str, int], unreported: Mapping[str, int]) -> Plan:  # noqa: ARG002 - the claim carries the finishes
        free = self._terms.concurrency - self._crew.running - sum(unreported.values())
        if free <= 0 or self._crew.rest > 0:
            return Plan(wait=self._crew.rest or FOREVER)
        return Plan((ClaimRequest(self._terms.queues, free, self._terms.lease_seconds, uuid4().hex),))

    def start(self, claim: Claim, *, sent_at: float, length: float) -> None:
        self._crew.start(claim, sent_at=sent_at, length=length)

    def heard(self, asks: Sequence[ClaimRequest], answers: Sequence[ClaimAnswer], *, idle: bool) -> float | None:
        (ask,), (answer,) = asks, answers
        if answer.claims:
            self._lookout.found()
            self._busy.reset()
            return 0.0 if len(answer.claims) == ask.n else self._lookout.wait()
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

    def look(self) -> None:
        self._lookout.news()

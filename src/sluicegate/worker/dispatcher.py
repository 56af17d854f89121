"""Claims exactly as many jobs as there are free slots, and reports finishes along with the next claim."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

from sluicegate.client import Client
from sluicegate.errors import InvalidArgument, SluicegateError, Unavailable
from sluicegate.model import Claim, ClaimAnswer, ClaimRefusal, Finish, FinishItem
from sluicegate.worker import parking
from sluicegate.worker.crew import Crew, Ended
from sluicegate.worker.events import Tally
from sluicegate.worker.leases import LeaseKeeper, ServerClock
from sluicegate.worker.loop import Loop, Pace
from sluicegate.worker.terms import Terms

_IDLE = (0.05, 1.0)
# Peers are gone in a moment; a first policy that waits for a long transaction is not.
_BUSY = (0.02, 1.0)
# Between two tries to finish a job that another transaction holds.
_HELD_UP = (0.05, 1.0)
_MOST_FINISHES = 200
# How long after closing a claim without an answer is still asked about, in seconds.
_ASK_AGAIN = 5.0
_WAIT_FOR_WAKING = float("inf")


@dataclass(frozen=True, slots=True)
class _Ask:
    """A claim whose answer is not known yet. It is repeated as it is, so that a lost answer loses no claim."""

    request_id: str
    n: int


class Dispatcher:
    """The conversation with the queue. ``fault`` is what made it stop claiming, if anything did; ``on_fault`` is told.

    After ``close`` it claims nothing more, gives back what it was given too late, and its loop ends as soon as nothing
    runs and every finish has been answered.
    """

    def __init__(
        self,
        client: Client,
        terms: Terms,
        *,
        crew: Crew,
        keeper: LeaseKeeper,
        tally: Tally,
        clock: ServerClock,
        on_fault: Callable[[SluicegateError], object],
    ) -> None:
        self.fault: SluicegateError | None = None
        self.closing = False
        self._client = client
        self._terms = terms
        self._crew = crew
        self._keeper = keeper
        self._tally = tally
        self._clock = clock
        self._on_fault = on_fault
        self._finishes: list[Ended] = []
        self._held_up: dict[int, Ended] = {}
        self._ask: _Ask | None = None
        self._give_up_at = float("inf")
        self._idle = Pace(*_IDLE)
        self._busy = Pace(*_BUSY)
        self._refused = Pace(0.1, 2.0)
        self._try_again = Pace(*_HELD_UP)
        self.loop = Loop(self._tick, away=tally.database_away)

    def finish(self, ended: Ended) -> None:
        """Report this with the next call."""
        self._finishes.append(ended)
        self.loop.wake()

    def look(self) -> None:
        """Ask for jobs now: what is due may have changed."""
        self._idle.reset()
        self.loop.wake()

    def close(self) -> None:
        """Claim nothing more."""
        if not self.closing:
            self.closing = True
            self._give_up_at = time.monotonic() + _ASK_AGAIN
        self.loop.wake()

    def abandon(self, why: str) -> None:
        """Count every finish that has not been answered as lost; the leases settle what becomes of the jobs."""
        lost = [*self._finishes, *self._held_up.values()]
        self._finishes.clear()
        self._held_up.clear()
        for ended in lost:
            self._lose(ended, why)

    async def _tick(self) -> float | None:
        batch = self._take()
        wanted = self._wanted()
        if wanted is None and not batch:
            return self._rest()
        try:
            if wanted is None:
                answers = await self._client.finish_many([ended.item for ended in batch])
                self._tally.database_back()
                self._settle(batch, answers)
                return 0.0
            self._ask = wanted
            sent_at = time.monotonic()
            answer = await self._client.claim(
                *self._terms.queues,
                n=wanted.n,
                lease_seconds=self._terms.lease_seconds,
                request_id=wanted.request_id,
                finished=[ended.item for ended in batch],
            )
        except BaseException as error:
            self._put_back(batch)
            if time.monotonic() > self._give_up_at:
                self._ask = None
            if wanted is None or isinstance(error, Unavailable) or not isinstance(error, SluicegateError):
                raise
            self._stop_claiming(error)
            return 0.0
        self._ask = None
        self._settle(batch, answer.finished)
        return self._hear(answer, wanted.n, sent_at)

    def _take(self) -> list[Ended]:
        """The finishes to send now. One whose heartbeat is on its way waits for its answer."""
        ready = [ended for ended in self._finishes if not self._keeper.is_asking(ended.claim.job_id)][:_MOST_FINISHES]
        sent = {ended.claim.attempt_id for ended in ready}
        self._finishes = [ended for ended in self._finishes if ended.claim.attempt_id not in sent]
        for ended in ready:
            self._keeper.finishing(ended.claim.job_id, sent=True)
        return ready

    def _put_back(self, batch: list[Ended]) -> None:
        for ended in batch:
            self._keeper.finishing(ended.claim.job_id, sent=False)
            if self.closing and not self._keeper.holds(ended.claim.job_id):
                self._lose(ended, "The database could not be reached until the lease had run out.")
            else:
                self._finishes.append(ended)

    def _lose(self, ended: Ended, why: str) -> None:
        self._keeper.drop(ended.claim.job_id)
        self._tally.lost(ended.claim, why, ended.seconds)

    def _wanted(self) -> _Ask | None:
        if self._ask is not None:
            return self._ask
        if self.closing or self._crew.free == 0 or self._crew.rest > 0:
            return None
        return _Ask(uuid4().hex, self._crew.free)

    def _rest(self) -> float | None:
        if self.closing:
            return None if self._is_idle else _WAIT_FOR_WAKING
        return self._crew.rest or _WAIT_FOR_WAKING

    @property
    def _is_idle(self) -> bool:
        """Whether nothing runs, and nothing has still to be reported."""
        return self._crew.running == 0 and not self._finishes and not self._held_up

    def _settle(self, batch: Sequence[Ended], answers: Sequence[Finish]) -> None:
        held_up = [ended for ended, answer in zip(batch, answers, strict=True) if answer.status == "unavailable"]
        if held_up:
            self._put_off(held_up)
        elif batch:
            self._try_again.reset()
        for ended, answer in zip(batch, answers, strict=True):
            if answer.status == "unavailable":
                continue
            if answer.status == "ok":
                self._keeper.drop(ended.claim.job_id)
                self._tally.finished(ended.claim, ended.item, answer, ended.seconds, ended.exit_code)
            else:
                self._lose(ended, answer.message or f"The database answered {answer.status}.")

    def _put_off(self, held_up: Sequence[Ended]) -> None:
        """Another transaction holds these jobs at this moment: nothing has changed, so they are reported again soon."""
        pause = self._try_again.next()
        for ended in held_up:
            job_id = ended.claim.job_id
            self._keeper.finishing(job_id, sent=False)
            if time.monotonic() > self._give_up_at and not self._keeper.holds(job_id):
                self._lose(ended, "Another transaction held the job until its lease had run out.")
            else:
                self._held_up[ended.claim.attempt_id] = ended
                asyncio.get_running_loop().call_later(pause, self._report_again, ended)

    def _report_again(self, ended: Ended) -> None:
        if self._held_up.pop(ended.claim.attempt_id, None) is not None:
            self.finish(ended)

    def _hear(self, answer: ClaimAnswer, asked: int, sent_at: float) -> float:
        self._clock.heard(answer.server_time)
        if answer.error is not None:
            return self._refusal(answer.error)
        self._refused.reset()
        self._tally.database_back()
        self._tally.claimed(len(answer.claims))
        closed = {entry.queue for entry in answer.deferred}
        came = {claim.job.queue for claim in answer.claims}
        self._tally.opened((came if not answer.empty else {*self._terms.queues}) - closed)
        self._tally.deferred(answer.deferred)
        for claim in answer.claims:
            self._begin(claim, sent_at, (claim.lease_expires_at - answer.server_time).total_seconds())
        if answer.claims:
            self._idle.reset()
            self._busy.reset()
            return 0.0 if len(answer.claims) == asked else self._idle.next()
        if answer.busy:
            return self._busy.next()
        self._busy.reset()
        if self._terms.drain and not answer.replayed and self._is_idle:
            self.close()
        elif answer.empty and not self.closing and self._is_idle:
            self._tally.waiting()
        # With nothing but closed queues there is nothing to look for until one of them opens.
        parked = parking.parked(answer, self._terms.queues) if answer.deferred else None
        return self._idle.next() if parked is None else parked

    def _begin(self, claim: Claim, sent_at: float, length: float) -> None:
        late = time.monotonic() - sent_at
        if self.closing or late > length / 2:
            reason = "The worker was stopping" if self.closing else f"The claim was answered only after {late:.1f} s"
            self.finish(Ended(claim, FinishItem.released(claim, reason=f"{reason}; never started.", started=False)))
        else:
            self._crew.start(claim, sent_at=sent_at, length=length)

    def _refusal(self, error: ClaimRefusal) -> float:
        """The claim part failed while the finishes stand."""
        if error.code == Unavailable.code:
            self._tally.database_away(Unavailable(error.message))
            return self._refused.next()
        kinds = {kind.code: kind for kind in SluicegateError.__subclasses__()}
        if error.code == InvalidArgument.code:
            self._stop_claiming(InvalidArgument(error.message, field=error.field))
        else:
            self._stop_claiming(kinds.get(error.code, SluicegateError)(error.message))
        return 0.0

    def _stop_claiming(self, error: SluicegateError) -> None:
        self._ask = None
        self.fault = error
        self.close()
        self._on_fault(error)

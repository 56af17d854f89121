"""Claims exactly what there are permits for, and reports finishes along with the next claims, in one call."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import compress

from sluicegate.client import Client
from sluicegate.errors import InvalidArgument, SluicegateError, Unavailable
from sluicegate.model import Claim, ClaimAnswer, ClaimRefusal, ClaimRequest, Finish, FinishItem
from sluicegate.worker.ended import Ended
from sluicegate.worker.events import Tally
from sluicegate.worker.leases import LeaseKeeper, ServerClock
from sluicegate.worker.loop import Loop, Pace
from sluicegate.worker.slots import FOREVER, Plan, Slots

# Between two tries to finish a job that another transaction holds.
_HELD_UP = (0.05, 1.0)
_MOST_FINISHES = 200
# How long an answer is waited for, in seconds; finishes and claims give up waiting for locks well before.
_PATIENCE = 30.0
# How long after closing a claim without an answer is still asked about, in seconds.
_ASK_AGAIN = 5.0


class Dispatcher:
    """The conversation with the queue. ``fault`` is what made it stop claiming, if anything did; ``on_fault`` is told.

    After ``close`` it claims nothing more, gives back what it was given too late, and its loop ends as soon as nothing
    runs and every finish has been answered.
    """

    def __init__(
        self,
        client: Client,
        slots: Slots,
        *,
        keeper: LeaseKeeper,
        tally: Tally,
        clock: ServerClock,
        on_fault: Callable[[SluicegateError], object],
    ) -> None:
        self.fault: SluicegateError | None = None
        self.closing = False
        self._client = client
        self._slots = slots
        self._keeper = keeper
        self._tally = tally
        self._clock = clock
        self._on_fault = on_fault
        self._finishes: list[Ended] = []
        self._held_up: dict[int, Ended] = {}
        # Claims that may have been made without our knowing. They are repeated as they are, with their permits, so that a
        # lost answer loses no claim.
        self._asks: tuple[ClaimRequest, ...] = ()
        self._give_up_at = float("inf")
        self._refused = Pace(0.1, 2.0)
        self._try_again = Pace(*_HELD_UP)
        self.loop = Loop(self._tick, away=tally.database_away, patience=_PATIENCE)

    def finish(self, ended: Ended) -> None:
        """Report this with the next call."""
        self._finishes.append(ended)
        self.loop.wake()

    def look(self, *, opened: bool = False) -> None:
        """Ask for jobs now: what is due may have changed; ``opened``: a policy too."""
        self._slots.look(opened=opened)
        self.loop.wake()

    def close(self) -> None:
        """Claim nothing more."""
        if not self.closing:
            self.closing = True
            self._give_up_at = time.monotonic() + _ASK_AGAIN
        self.loop.wake()

    def abandon(self, why: str) -> None:
        """Count every finish that has not been answered as lost; the leases settle what becomes of the jobs."""
        self._forget()
        lost = [*self._finishes, *self._held_up.values()]
        self._finishes.clear()
        self._held_up.clear()
        for ended in lost:
            self._lose(ended, why)

    async def _tick(self) -> float | None:
        again = bool(self._asks)
        try:
            plan = await self._plan()
        except Unavailable:
            raise
        except SluicegateError as error:
            self._stop_claiming(error)
            return 0.0
        batch = self._take()
        if not plan.asks and not batch:
            return self._rest(plan)
        try:
            if not plan.asks:
                answers = await self._client.finish_many([ended.item for ended in batch], wait=False)
                self._tally.database_back()
                self._settle(batch, answers)
                return 0.0
            self._asks = plan.asks
            sent_at = time.monotonic()
            answer = await self._client.claim_many(plan.asks, finished=[ended.item for ended in batch], wait=False)
        except BaseException as error:
            self._put_back(batch)
            # A call that was broken off gives back by itself what it brings. Repeated, it could come second, and give
            # back what the repetition has started.
            if isinstance(error, asyncio.CancelledError) or self._nothing_claimed(error, again=again):
                self._forget()
            if not plan.asks or isinstance(error, Unavailable) or not isinstance(error, SluicegateError):
                raise
            self._stop_claiming(error)
            return 0.0
        self._settle(batch, answer.finished)
        return self._hear(plan.asks, answer.responses, sent_at, again=again)

    async def _plan(self) -> Plan:
        if self._asks:
            return Plan(self._asks)
        plan = Plan() if self.closing else await self._planned()
        # It may have been told to stop meanwhile.
        if self.closing:
            self._slots.dropped(plan.asks)
            return Plan()
        return plan

    async def _planned(self) -> Plan:
        finishing = Counter(ended.claim.job.queue for ended in self._sendable())
        ended = Counter(one.claim.job.queue for one in (*self._finishes, *self._held_up.values()))
        return await self._slots.plan(finishing, ended - finishing)

    def _nothing_claimed(self, error: object, *, again: bool) -> bool:
        """Whether asking once more would find no claim, or is given up; ``again``: it had been sent before."""
        if time.monotonic() > self._give_up_at:
            return True
        return not again and isinstance(error, (Unavailable, ClaimRefusal)) and not error.outcome_unknown

    def _forget(self) -> None:
        self._slots.dropped(self._asks)
        self._asks = ()

    def _take(self) -> list[Ended]:
        """The finishes to send now."""
        ready = self._sendable()
        sent = {ended.claim.attempt_id for ended in ready}
        self._finishes = [ended for ended in self._finishes if ended.claim.attempt_id not in sent]
        for ended in ready:
            self._keeper.finishing(ended.claim, sent=True)
        return ready

    def _sendable(self) -> list[Ended]:
        """One whose heartbeat is on its way waits for its answer."""
        return [ended for ended in self._finishes if not self._keeper.is_asking(ended.claim)][:_MOST_FINISHES]

    def _put_back(self, batch: list[Ended]) -> None:
        for ended in batch:
            self._keeper.finishing(ended.claim, sent=False)
            if self.closing and not self._keeper.holds(ended.claim):
                self._lose(ended, "The database could not be reached until the lease had run out.")
            else:
                self._finishes.append(ended)

    def _lose(self, ended: Ended, why: str) -> None:
        self._keeper.drop(ended.claim)
        self._tally.lost(ended.claim, why, ended.seconds)

    def _rest(self, plan: Plan) -> float | None:
        # A finish that has still to be reported may give its job back: then there is more to do.
        if plan.wait is None and self._is_idle:
            self.close()
        if self.closing:
            return None if self._is_idle else FOREVER
        return FOREVER if plan.wait is None else plan.wait

    @property
    def _is_idle(self) -> bool:
        """Whether nothing runs, and nothing has still to be reported."""
        return self._slots.running == 0 and not self._finishes and not self._held_up

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
                self._keeper.drop(ended.claim)
                self._tally.finished(ended.claim, ended.item, answer, ended.seconds, ended.exit_code)
            else:
                self._lose(ended, answer.message or f"The database answered {answer.status}.")

    def _put_off(self, held_up: Sequence[Ended]) -> None:
        """Another transaction holds these jobs at this moment: nothing has changed, so they are reported again soon."""
        pause = self._try_again.next()
        for ended in held_up:
            self._keeper.finishing(ended.claim, sent=False)
            if time.monotonic() > self._give_up_at and not self._keeper.holds(ended.claim):
                self._lose(ended, "Another transaction held the job until its lease had run out.")
            else:
                self._held_up[ended.claim.attempt_id] = ended
                asyncio.get_running_loop().call_later(pause, self._report_again, ended)

    def _report_again(self, ended: Ended) -> None:
        if self._held_up.pop(ended.claim.attempt_id, None) is not None:
            self.finish(ended)

    def _hear(
        self, asks: Sequence[ClaimRequest], answers: Sequence[ClaimAnswer], sent_at: float, *, again: bool
    ) -> float:
        refused = [answer.error for answer in answers if answer.error is not None]
        for ask, answer in zip(asks, answers, strict=True):
            self._clock.heard(answer.server_time)
            if answer.error is None:
                self._tally.database_back()
                self._tell(ask, answer)
            for claim in answer.claims:
                self._begin(claim, sent_at, (claim.lease_expires_at - answer.server_time).total_seconds())
        known = [
            one.error is None or one.error.code != Unavailable.code or self._nothing_claimed(one.error, again=again)
            for one in answers
        ]
        self._asks = tuple(ask for ask, is_known in zip(asks, known, strict=True) if not is_known)
        wait: float | None = FOREVER
        if any(known):
            idle = self._is_idle and not self.closing
            wait = self._slots.heard(tuple(compress(asks, known)), tuple(compress(answers, known)), idle=idle)
        # One queue that cannot be asked says nothing about the others: whoever has the slots leaves it alone for a while.
        # But nothing else is asked for before it is known what may have been claimed.
        alone = len(refused) == len(answers) or bool(self._asks)
        if refused and (alone or any(error.code != Unavailable.code for error in refused)):
            return max(self._refusal(error) for error in refused)
        self._refused.reset()
        if wait is None:
            self.close()
            return 0.0
        return wait

    def _tell(self, ask: ClaimRequest, answer: ClaimAnswer) -> None:
        self._tally.claimed(len(answer.claims))
        closed = {entry.queue for entry in answer.deferred}
        came = {claim.job.queue for claim in answer.claims}
        self._tally.opened((came if not answer.empty else {*ask.queues}) - closed)
        self._tally.deferred(answer.deferred)

    def _begin(self, claim: Claim, sent_at: float, length: float) -> None:
        late = time.monotonic() - sent_at
        if self.closing or late > length / 2:
            reason = "The worker was stopping" if self.closing else f"The claim was answered only after {late:.1f} s"
            self.finish(Ended(claim, FinishItem.released(claim, reason=f"{reason}; never started.", started=False)))
        else:
            self._slots.start(claim, sent_at=sent_at, length=length)

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
        self._forget()
        self.fault = error
        self.close()
        self._on_fault(error)

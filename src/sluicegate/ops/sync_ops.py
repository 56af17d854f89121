# Generated from ops/async_ops.py by tools/unasync.py: change that file, then run it.
"""The verbs: input checked, call sent, answer understood. Each takes the scope it acts in."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import uuid4

from sluicegate.errors import SluicegateError, Unavailable
from sluicegate.model import (
    Cancelled,
    Claim,
    ClaimAnswer,
    ClaimAnswers,
    ClaimRequest,
    Enqueued,
    EnqueuedMany,
    Finish,
    FinishItem,
    Heartbeat,
    JobDetail,
    JobPage,
    Lease,
    NewJob,
    Pruned,
    QueueStats,
    Reaped,
    Retried,
)
from sluicegate.ops import answers, requests
from sluicegate.ops.database import Database
from sluicegate.ops.sync_budgets import SyncBudgetOps
from sluicegate.ops.wakes import Call, Wakes
from sluicegate.store.calls import SyncCalls, sync_blocking, sync_pause
from sluicegate.store.sync_connections import SyncPool
from sluicegate.store.sync_store import SyncStore

T = TypeVar("T")

# How long a claim waits, in seconds, before it asks again while others hold the rows it saw.
_BUSY_WAITS = (0.005, 0.02, 0.05)


class SyncOps(SyncBudgetOps):
    """What people do with jobs, over one pool of connections to one database.

    A call whose connection is lost is repeated once: finishes and heartbeats are idempotent by their lease token,
    enqueues and claims by a request id, which is made here if the caller gives none. With ``retries`` false no request
    id is made, and a lost connection is raised at once.
    """

    def __init__(self, database: Database, pool: SyncPool, calls: SyncCalls, *, retries: bool = True) -> None:
        self._database = database
        self._calls = calls
        self._store = SyncStore(pool)
        self._retries = retries
        self._wakes = Wakes()

    def enqueue(self, job: NewJob, *, scope: str, request_id: str | None = None) -> Enqueued:
        arguments = requests.enqueue(job, scope=scope, request_id=self._request_id(request_id))
        call = self._wakes.call(scope, (job.queue,))
        answer = self._ask(
            lambda: self._store.enqueue({**arguments, "wake": call.wake}),
            abandoned=lambda unseen: self._told(call, (answers.enqueued(unseen),)),
        )
        added = answers.enqueued(answer)
        self._told(call, (added,))
        return added

    def enqueue_many(self, jobs: Iterable[NewJob], *, scope: str, request_id: str | None = None) -> EnqueuedMany:
        several = list(jobs)
        arguments = requests.enqueue_many(several, scope=scope, request_id=self._request_id(request_id))
        call = self._wakes.call(scope, (job.queue for job in several))
        answer = self._ask(
            lambda: self._store.enqueue_many({**arguments, "wake": call.wake}),
            abandoned=lambda unseen: self._told(call, answers.enqueued_many(unseen).jobs),
        )
        added = answers.enqueued_many(answer)
        self._told(call, added.jobs)
        return added

    def claim(
        self,
        queues: Sequence[str],
        *,
        scope: str,
        worker: str | None = None,
        n: int = 1,
        lease_seconds: int | None = None,
        request_id: str | None = None,
        finished: Iterable[FinishItem] = (),
    ) -> ClaimAnswer:
        arguments = requests.claim(
            queues,
            n=n,
            lease_seconds=lease_seconds,
            request_id=self._request_id(request_id),
            finished=finished,
            worker=worker,
            scope=scope,
        )
        answer = first = self._claim(arguments, scope)
        for wait in _BUSY_WAITS:
            if not answer.busy:
                break
            sync_pause(wait * random.uniform(0.5, 1.5))
            # The finishes stand; only the claim is asked for again.
            answer = self._claim({**arguments, "finished": "[]"}, scope)
        return replace(answer, finished=first.finished)

    def claim_many(
        self,
        asks: Sequence[ClaimRequest],
        *,
        scope: str,
        worker: str | None = None,
        finished: Iterable[FinishItem] = (),
        wait: bool = True,
    ) -> ClaimAnswers:
        named = [replace(ask, request_id=self._request_id(ask.request_id)) for ask in asks]
        arguments = requests.claim_many(named, finished=finished, worker=worker, scope=scope, wait=wait)
        return answers.claim_answers(self._claims(arguments, scope))

    def claim_job(
        self,
        job_id: int,
        *,
        scope: str,
        worker: str | None = None,
        lease_seconds: int | None = None,
        request_id: str | None = None,
    ) -> Claim:
        arguments = requests.claim_job(
            job_id,
            lease_seconds=lease_seconds,
            request_id=self._request_id(request_id),
            worker=worker,
            scope=scope,
        )
        answer = self._claim_job(arguments, scope)
        for wait in _BUSY_WAITS:
            if answer["status"] != "busy":
                break
            sync_pause(wait * random.uniform(0.5, 1.5))
            answer = self._claim_job(arguments, scope)
        return answers.claimed_job(answer)

    def finish_many(self, items: Iterable[FinishItem], *, scope: str, wait: bool = True) -> tuple[Finish, ...]:
        arguments = requests.finish_many(items, scope=scope, wait=wait)
        return answers.finishes(self._ask(lambda: self._store.claim(arguments)))

    def complete(self, lease: Claim | Lease, result: Any = None, *, scope: str, summary: str | None = None) -> Finish:
        arguments = requests.complete(lease, result, summary=summary, scope=scope)
        return answers.finish(self._ask(lambda: self._store.complete(arguments)))

    def fail(
        self,
        lease: Claim | Lease,
        error: str,
        *,
        scope: str,
        retry_in_seconds: float | None = None,
        retry: bool = True,
        summary: str | None = None,
    ) -> Finish:
        arguments = requests.fail(
            lease, error, retry_in_seconds=retry_in_seconds, retry=retry, summary=summary, scope=scope
        )
        return answers.finish(self._ask(lambda: self._store.fail(arguments)))

    def release(
        self,
        lease: Claim | Lease,
        *,
        scope: str,
        reason: str | None = None,
        not_before: datetime | None = None,
        started: bool = True,
    ) -> Finish:
        arguments = requests.release(lease, reason=reason, not_before=not_before, started=started, scope=scope)
        return answers.finish(self._ask(lambda: self._store.release(arguments)))

    def heartbeat(
        self,
        lease: Claim | Lease,
        *,
        scope: str,
        lease_seconds: int | None = None,
        shorten: bool = False,
        note: str | None = None,
    ) -> Heartbeat:
        arguments = requests.heartbeat(lease, lease_seconds=lease_seconds, shorten=shorten, note=note, scope=scope)
        return answers.heartbeat(self._ask(lambda: self._store.heartbeat(arguments)))

    def heartbeat_many(
        self,
        leases: Iterable[Claim | Lease],
        *,
        scope: str,
        lease_seconds: int | None = None,
        shorten: bool = False,
    ) -> tuple[Heartbeat, ...]:
        arguments = requests.heartbeat_many(leases, lease_seconds=lease_seconds, shorten=shorten, scope=scope)
        return answers.heartbeats(self._ask(lambda: self._store.heartbeat_many(arguments)))

    def retry(self, job_id: int, *, scope: str) -> Retried:
        arguments = requests.retry(job_id, scope=scope)
        # Not repeated when its connection is lost: the second answer would deny what the first one did.
        return answers.retried(self._calls.run(self._store.retry(arguments)))

    def cancel(self, job_id: int, *, scope: str, reason: str | None = None) -> Cancelled:
        arguments = requests.cancel(job_id, reason=reason, scope=scope)
        return answers.cancelled(self._ask(lambda: self._store.cancel(arguments)))

    def get_job(self, job_id: int, *, scope: str, attempts_limit: int = 20) -> JobDetail:
        arguments = requests.get_job(job_id, attempts_limit=attempts_limit, scope=scope)
        return answers.job_detail(self._ask(lambda: self._store.get_job(arguments)))

    def list_jobs(
        self,
        *,
        scope: str,
        queue: str | None = None,
        state: str | None = None,
        kind: str | None = None,
        limit: int = 50,
        before_id: int | None = None,
    ) -> JobPage:
        arguments = requests.list_jobs(
            queue=queue, state=state, kind=kind, limit=limit, before_id=before_id, scope=scope
        )
        return answers.job_page(self._ask(lambda: self._store.list_jobs(arguments)))

    def queue_stats(self, *, scope: str) -> QueueStats:
        arguments = requests.queue_stats(scope=scope)
        return answers.queue_stats(self._ask(lambda: self._store.queue_stats(arguments)))

    def server_time(self) -> datetime:
        return answers.server_time(self._ask(self._store.clock))

    def reap(self, limit: int = 1000, *, scope: str) -> Reaped:
        arguments = requests.reap(limit, scope=scope)
        return answers.reaped(self._ask(lambda: self._store.reap(arguments)))

    def prune(
        self, *, job_days: int = 30, keep_jobs: int = 500_000, attempt_days: int = 45, limit: int = 10_000
    ) -> Pruned:
        arguments = requests.prune(job_days, keep_jobs, attempt_days, limit)
        return answers.pruned(self._ask(lambda: self._store.prune(arguments)))

    def _told(self, call: Call, added: Iterable[Enqueued]) -> None:
        """See to it that workers hear of what a call has added. A hint: that it fails changes nothing for the jobs."""
        if self._wakes.done(call, (one.queue for one in added if one.created)):
            with contextlib.suppress(SluicegateError):
                self._calls.run(self._store.wake({"queues": list(call.queues), "scope": call.scope}))

    def _claim(self, arguments: requests.Arguments, scope: str) -> ClaimAnswer:
        return answers.claim_answer(self._claims(arguments, scope))

    def _claims(self, arguments: requests.Arguments, scope: str) -> answers.Answer:
        """The answer, and whether it is that of the second sending: what that refuses, the first may have claimed."""
        sent = 0

        def call() -> Any:
            nonlocal sent
            sent += 1
            return self._store.claim(arguments)

        answer = self._ask(call, lambda unseen: self._give_back(answers.all_claims(unseen), scope))
        return {**answer, "repeated": sent > 1}

    def _claim_job(self, arguments: requests.Arguments, scope: str) -> answers.Answer:
        return self._ask(
            lambda: self._store.claim_job(arguments),
            abandoned=lambda unseen: self._give_back(answers.unseen_claims(unseen), scope),
        )

    def _give_back(self, claims: tuple[Claim, ...], scope: str) -> None:
        """Release jobs whose claim was cancelled while its answer was on the way: none of them ever started."""
        if claims:
            reason = "The call that claimed this job was cancelled before its answer arrived."
            self.finish_many(
                [FinishItem.released(claim, reason=reason, started=False) for claim in claims], scope=scope
            )

    def _ask_again(self, call: Callable[[], Any]) -> Any:
        return self._ask(call)

    def _ask(
        self,
        call: Callable[[], T],
        abandoned: Callable[[T], object] | None = None,
    ) -> T:
        """Send a call that is safe to repeat; once more if its connection was lost."""
        try:
            return self._calls.run(call(), abandoned)
        except Unavailable as error:
            if not (self._retries and error.outcome_unknown):
                raise
        try:
            return self._calls.run(self._renewed(call), abandoned)
        except Unavailable as error:
            # Whatever became of the second sending, the first may have taken effect.
            error.outcome_unknown = True
            raise

    def _renewed(self, call: Callable[[], T]) -> T:
        sync_blocking(self._database.renew)
        return call()

    def _request_id(self, given: str | None) -> str | None:
        return uuid4().hex if given is None and self._retries else given

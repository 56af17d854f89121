# Generated from client.py by tools/unasync.py: change that file, then run it.
"""The synchronous client: every verb of the queue as a method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sluicegate.errors import Unavailable
from sluicegate.model import (
    Backoff,
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
    JobState,
    Lease,
    NewJob,
    Pruned,
    QueueStats,
    Reaped,
    Retried,
)
from sluicegate.ops.database import Database, open_database
from sluicegate.ops.sync_ops import SyncOps
from sluicegate.ops.validate import flag, given_tags, seconds, whole
from sluicegate.store.calls import SyncCalls, sync_blocking
from sluicegate.store.sync_connections import SyncPool
from sluicegate.sync_budgets import SyncBudgets


class SyncClient(SyncBudgets):
    """A work queue, over a small pool of connections.

        with SyncClient() as client:
            client.enqueue("mail", {"to": "ada@example.org"})
            answer = client.claim("mail")
            for claim in answer.claims:
                client.complete(claim, {"sent": claim.job.payload["to"]})

    ``dsn`` names a PostgreSQL whose schema has been migrated. Without it the settings decide (``SLUICEGATE_DSN``, the
    configuration file); without those the private PostgreSQL in ``data_dir`` is started and migrated. ``scope`` is
    whose queues these are: None means the settings' scope, which is ``endpoint:default`` unless set. ``worker`` is the
    name, up to 128 bytes, that claims are made under. ``min_size`` and ``max_size`` bound the connections, and
    ``timeout`` is how many seconds a call waits for one, up to 30 days.

    Every error raised is a SluicegateError: InvalidArgument before anything is sent, NotFound and Conflict when the
    database refuses, Unavailable when it cannot be reached. Calls whose connection is lost are repeated once where
    that is safe: finishes by their lease token, enqueues and claims by a request id of their own. ``retries=False``
    turns that off and saves the row that remembers each request id.

    One client may be used from several threads at once.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        scope: str | None = None,
        worker: str | None = None,
        data_dir: Path | None = None,
        min_size: int = 1,
        max_size: int = 4,
        timeout: float = 30.0,
        retries: bool = True,
    ) -> None:
        self._dsn = dsn
        self._wanted_scope = scope
        self._worker = worker
        self._data_dir = data_dir
        self._max_size = whole(max_size, "max_size", 1, 10_000)
        self._min_size = whole(min_size, "min_size", 0, self._max_size)
        self._timeout = seconds(timeout, "timeout")
        self._retries = flag(retries, "retries")
        self._calls = SyncCalls()
        self._lent: Database | None = None
        self._database: Database | None = None
        self._pool: SyncPool | None = None
        self._opened: SyncOps | None = None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> Self:
        """Find the database, check its schema and start the pool; doing it twice is fine.

        Raises Unavailable if it cannot be reached, SchemaMismatch if it needs ``sluicegate migrate``, EmbeddedError.
        """
        if self._opened is not None:
            return self
        database = self._calls.run(self._find(), abandoned=self._let_go)
        try:
            pool = SyncPool(
                database.dsn, self._calls, min_size=self._min_size, max_size=self._max_size, timeout=self._timeout
            )
            pool.open()
        except BaseException:
            self._let_go(database)
            raise
        self._database, self._pool = database, pool
        self._opened = SyncOps(database, pool, self._calls, retries=self._retries)
        return self

    def close(self) -> None:
        """Wait for calls that are under way, close the connections, let go of the database. Twice is fine.
        Broken off, it does not wait any longer, and closes and lets go all the same.
        """
        # Taken first, so that a client that is opened again meanwhile keeps what is its own.
        pool, database = self._pool, self._database
        self._opened = self._pool = self._database = None
        try:
            self._calls.drain()
        finally:
            try:
                if pool is not None:
                    pool.close()
            finally:
                if database is not None:
                    self._let_go(database)

    def beside(self, *, max_size: int = 4) -> SyncClient:
        """Another client, not open, of the same database, with connections of its own; to be closed before this one."""
        if self._database is None:
            raise _not_open()
        other = SyncClient(worker=self._worker, max_size=max_size, timeout=self._timeout, retries=self._retries)
        other._lent = self._database.lent()
        return other

    @property
    def scope(self) -> str:
        """Whose queues this client works on, in text form. Raises Unavailable before the client is open."""
        if self._database is None:
            raise _not_open()
        return self._database.scope

    @property
    def worker(self) -> str | None:
        """Who claims, as jobs and their attempts show it."""
        return self._worker

    @property
    def dsn(self) -> str:
        """The database this client works on; it may hold a password. Raises Unavailable before the client is open."""
        if self._database is None:
            raise _not_open()
        return self._database.dsn

    def enqueue(
        self,
        queue: str,
        payload: Any = None,
        *,
        kind: str = "",
        title: str = "",
        priority: int | None = None,
        run_at: datetime | None = None,
        dedup_key: str | None = None,
        tags: Iterable[str] = (),
        parent_id: int | None = None,
        max_attempts: int = 5,
        backoff: Backoff | None = None,
        request_id: str | None = None,
    ) -> Enqueued:
        """Add one job; the answer's ``created`` is false if a live job already has the ``dedup_key``.

        ``payload`` is any JSON value up to 1 MiB. ``priority`` is a smallint, lower first; None means 10, or the
        parent's. ``run_at`` is an aware datetime. See NewJob for the rest. Repeating a call with its ``request_id``
        within 24 hours gives the first answer again. Raises InvalidArgument, Conflict, Unavailable.
        """
        job = NewJob(
            queue,
            payload,
            kind=kind,
            title=title,
            priority=priority,
            run_at=run_at,
            dedup_key=dedup_key,
            tags=given_tags(tags),
            parent_id=parent_id,
            max_attempts=max_attempts,
            backoff=backoff,
        )
        return self._ops.enqueue(job, scope=self.scope, request_id=request_id)

    def enqueue_many(self, jobs: Iterable[NewJob], *, request_id: str | None = None) -> EnqueuedMany:
        """Add 1 to 10,000 jobs in one transaction, all or none; the answers are in the order of ``jobs``.

        Raises InvalidArgument naming e.g. ``jobs[3].payload``, Conflict, Unavailable.
        """
        return self._ops.enqueue_many(jobs, scope=self.scope, request_id=request_id)

    def claim(
        self,
        *queues: str,
        n: int = 1,
        lease_seconds: int | None = None,
        request_id: str | None = None,
        finished: Iterable[FinishItem] = (),
    ) -> ClaimAnswer:
        """Take up to ``n`` (1 to 1,000) jobs of the queues: by priority, due time and id across them.

        Each claim holds for ``lease_seconds`` (1 to 86,400; None means the endpoint's, 300 unless set) and is kept by
        heartbeats. ``finished`` are finishes of earlier jobs in the same transaction; they stand whatever happens to
        the claim, so with them a refusal of the claim part is ``answer.error`` instead of being raised. A repeated
        ``request_id`` opens nothing more: it gives the claims that are still open, with new tokens.

        Never waits for work. While others hold the rows, it asks a few times and then answers ``busy``. Raises
        InvalidArgument, NotFound for an unknown scope, Conflict, WrongIsolation, Unavailable.
        """
        return self._ops.claim(
            queues,
            scope=self.scope,
            worker=self._worker,
            n=n,
            lease_seconds=lease_seconds,
            request_id=request_id,
            finished=finished,
        )

    def claim_many(
        self, asks: Sequence[ClaimRequest], *, finished: Iterable[FinishItem] = (), wait: bool = True
    ) -> ClaimAnswers:
        """Several claims (1 to 100) in one call, each answered by itself, as ``claim`` would, but ``busy`` at once.

        What makes one of them impossible is its ``error``. With ``wait=False`` a policy that somebody is changing, or a job
        to finish that somebody holds, is waited for a tenth of a second instead of 5 s or 1: then that queue is ``busy``,
        that finish ``unavailable``. Raises InvalidArgument, Unavailable.
        """
        return self._ops.claim_many(asks, scope=self.scope, worker=self._worker, finished=finished, wait=wait)

    def claim_job(self, job_id: int, *, lease_seconds: int | None = None, request_id: str | None = None) -> Claim:
        """Take one job by its id, if it is due and free. Raises Conflict with its state, NotFound.

        Raises Deferred, with the reason and the time, if its queue is closed; Unavailable while others hold the queue.
        """
        return self._ops.claim_job(
            job_id, scope=self.scope, worker=self._worker, lease_seconds=lease_seconds, request_id=request_id
        )

    def heartbeat(
        self,
        lease: Claim | Lease,
        *,
        lease_seconds: int | None = None,
        shorten: bool = False,
        note: str | None = None,
    ) -> Heartbeat:
        """Renew a lease for ``lease_seconds`` (None: as long as it was given for) from now.

        It is never shortened unless ``shorten`` is true. ``note`` (up to 512 bytes) is shown with the job. The answer
        says whether the job was cancelled. Raises Conflict if the lease was lost: stop working on the job. NotFound.
        """
        return self._ops.heartbeat(lease, scope=self.scope, lease_seconds=lease_seconds, shorten=shorten, note=note)

    def heartbeat_many(
        self, leases: Iterable[Claim | Lease], *, lease_seconds: int | None = None, shorten: bool = False
    ) -> tuple[Heartbeat, ...]:
        """Renew 1 to 10,000 leases in one call, one answer each: ``conflict`` if it was lost, ``unavailable`` if another transaction holds the job."""
        return self._ops.heartbeat_many(leases, scope=self.scope, lease_seconds=lease_seconds, shorten=shorten)

    def complete(self, lease: Claim | Lease, result: Any = None, *, summary: str | None = None) -> Finish:
        """Finish a job as done, with a JSON ``result`` up to 1 MiB and a ``summary`` up to 2 KiB.

        Text that PostgreSQL cannot store is escaped, NaN becomes text, a long summary is clipped. Doing it twice with
        one lease is fine (``replayed``). Raises Conflict if the lease was lost or finished otherwise, NotFound,
        Unavailable while another transaction holds the job.
        """
        return self._ops.complete(lease, result, scope=self.scope, summary=summary)

    def fail(
        self,
        lease: Claim | Lease,
        error: str,
        *,
        retry_in_seconds: float | None = None,
        retry: bool = True,
        summary: str | None = None,
    ) -> Finish:
        """End an attempt as failed; the job runs again after its backoff, or is a dead letter at its attempt cap.

        ``error`` is clipped to 16 KiB, its ends kept. ``retry_in_seconds`` (0 to a year) replaces the backoff;
        ``retry=False`` makes a dead letter at once. Raises Conflict, NotFound.
        """
        return self._ops.fail(
            lease, error, scope=self.scope, retry_in_seconds=retry_in_seconds, retry=retry, summary=summary
        )

    def release(
        self,
        lease: Claim | Lease,
        *,
        reason: str | None = None,
        not_before: datetime | None = None,
        started: bool = True,
    ) -> Finish:
        """Give a job back unfinished, to run at once or at ``not_before`` (an aware datetime).

        ``started=False``, for a job that never ran, gives the attempt back as well. Raises Conflict, NotFound.
        """
        return self._ops.release(lease, scope=self.scope, reason=reason, not_before=not_before, started=started)

    def finish_many(self, items: Iterable[FinishItem], *, wait: bool = True) -> tuple[Finish, ...]:
        """Finish up to 10,000 jobs in one call, one answer each in order; a bad one stops no other. ``wait``: as ``claim_many``."""
        return self._ops.finish_many(items, scope=self.scope, wait=wait)

    def retry(self, job_id: int) -> Retried:
        """Put a failed, cancelled or waiting job back to pending now, its attempts counted from 0.

        Raises Conflict, whose ``conflicting_job_id`` is the live job that has its dedup key; NotFound.
        """
        return self._ops.retry(job_id, scope=self.scope)

    def cancel(self, job_id: int, *, reason: str | None = None) -> Cancelled:
        """Cancel a job: at once, or, if it is claimed, when its holder sends its next heartbeat.

        Raises Conflict if it has already ended otherwise; NotFound.
        """
        return self._ops.cancel(job_id, scope=self.scope, reason=reason)

    def get_job(self, job_id: int, *, attempts_limit: int = 20) -> JobDetail:
        """One job whole, with its newest attempts (0 to 50 of them). Raises NotFound."""
        return self._ops.get_job(job_id, scope=self.scope, attempts_limit=attempts_limit)

    def list_jobs(
        self,
        *,
        queue: str | None = None,
        state: JobState | None = None,
        kind: str | None = None,
        limit: int = 50,
        before_id: int | None = None,
    ) -> JobPage:
        """Up to ``limit`` (1 to 200) jobs, newest first; ``before_id`` continues after a page."""
        return self._ops.list_jobs(
            scope=self.scope, queue=queue, state=state, kind=kind, limit=limit, before_id=before_id
        )

    def queue_stats(self) -> QueueStats:
        """How many jobs each queue has in each state."""
        return self._ops.queue_stats(scope=self.scope)

    def server_time(self) -> datetime:
        """The time by the database's clock, which alone decides what is due."""
        return self._ops.server_time()

    def reap(self, *, limit: int = 1000) -> Reaped:
        """End up to ``limit`` claims of this scope whose lease has lapsed. Claims do not need it; it keeps the figures honest."""
        return self._ops.reap(limit, scope=self.scope)

    def prune(
        self, *, job_days: int = 30, keep_jobs: int = 500_000, attempt_days: int = 45, limit: int = 10_000
    ) -> Pruned:
        """Delete what retention lets go, up to ``limit`` rows of each kind; live jobs are never touched.

        Finished jobs go after ``job_days``, or beyond the newest ``keep_jobs`` of a scope; attempts after
        ``attempt_days`` (at least 32). Keeping less than the defaults needs the admin role: raises Forbidden otherwise.
        The use of budgets is kept for 400 days, refusals and the audit of policies for a year, whoever asks.
        """
        return self._ops.prune(job_days=job_days, keep_jobs=keep_jobs, attempt_days=attempt_days, limit=limit)

    @property
    def _ops(self) -> SyncOps:
        if self._opened is None:
            raise _not_open()
        return self._opened

    def _find(self) -> Database:
        if self._lent is not None:
            return self._lent
        self._calls.sent(None)  # a private PostgreSQL that is starting is let go of, however long it takes
        return sync_blocking(lambda: open_database(self._dsn, self._wanted_scope, self._data_dir))

    def _let_go(self, database: Database) -> None:
        sync_blocking(database.close)


def _not_open() -> Unavailable:
    return Unavailable(
        "This client is not open.",
        retriable=False,
        next_step="Use it inside `with`, or call `client.open()` first.",
    )

"""What a handler knows of the attempt that it does, and what it can say about it while it runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from datetime import datetime
from typing import NoReturn

from sluicegate.client import Client
from sluicegate.errors import Unavailable
from sluicegate.model import Claim, Heartbeat, Job
from sluicegate.worker.outcomes import Release

# How long a handler waits for the answer to its own heartbeat, in seconds: a thread cannot be freed from waiting.
_PATIENCE = 15.0


class _Attempt:
    def __init__(self, client: Client, claim: Claim, is_over: Callable[[], bool]) -> None:
        self._client = client
        self._claim = claim
        self._is_over = is_over
        self._cancelled = False

    @property
    def job(self) -> Job:
        return self._claim.job

    @property
    def attempt(self) -> int:
        """Which of its ``max_attempts`` this is, from 1."""
        return self._claim.job.attempt

    @property
    def attempt_id(self) -> int:
        return self._claim.attempt_id

    @property
    def claim(self) -> Claim:
        return self._claim

    @property
    def lease_token(self) -> str:
        """The secret that proves the lease, for calls of one's own."""
        return self._claim.lease_token

    @property
    def cancelled(self) -> bool:
        """Whether the work is to end: the job was cancelled, its lease lost, its time over, or the worker is stopping."""
        return self._cancelled or self._is_over()

    def release(self, reason: str | None = None, not_before: datetime | None = None) -> NoReturn:
        """Give the job back, to run again from ``not_before`` on: raises the Release that does that."""
        raise Release(reason, not_before)

    async def _heartbeat(self, note: str | None) -> Heartbeat:
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await self._client.heartbeat(self._claim, note=note)
        except TimeoutError:
            raise Unavailable(f"PostgreSQL did not answer a heartbeat within {_PATIENCE:g} s.") from None
        if answer.cancelled:
            self._cancelled = True
        return answer


class Context(_Attempt):
    """For async handlers. The lease is kept without any call; see ``heartbeat``."""

    async def heartbeat(self) -> Heartbeat:
        """Renew the lease now and hear whether the job was cancelled. Raises Conflict when the lease is lost."""
        return await self._heartbeat(None)

    async def note(self, text: str) -> Heartbeat:
        """Say how far it is (up to 512 bytes), for ``jobs`` and ``job``. Raises as ``heartbeat``."""
        return await self._heartbeat(text)


class ThreadContext(_Attempt):
    """For handlers in threads: the same calls, which wait. Look at ``cancelled`` now and then: a thread cannot be ended."""

    def __init__(
        self, client: Client, claim: Claim, is_over: Callable[[], bool], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(client, claim, is_over)
        self._loop = loop

    def heartbeat(self) -> Heartbeat:
        return self._wait(None)

    def note(self, text: str) -> Heartbeat:
        return self._wait(text)

    def _wait(self, note: str | None) -> Heartbeat:
        asked: concurrent.futures.Future[Heartbeat] = asyncio.run_coroutine_threadsafe(
            self._heartbeat(note), self._loop
        )
        return asked.result()

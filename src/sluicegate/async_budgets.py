"""The part of the asynchronous client that is about budgets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sluicegate.model import (
    AdmissionStatus,
    Budget,
    BudgetAudit,
    Demand,
    Explanation,
    NextJobs,
    QueueAdmission,
    Rehearsal,
)
from sluicegate.ops.async_ops import AsyncOps


class AsyncBudgets(ABC):
    """How much of a queue may start, and why something does not.

    A policy is the API's JSON object: ``{"max_in_flight": 4, "limits": [{"max_claims_per_window": 100, "window":
    {"period": "day", "tz": "Europe/Berlin", "start": "00:00"}}]}``; a week's window also has a ``weekday``, a month's
    a ``day``; without a ``tz`` it is counted in the owner's zone, else in UTC. Changes hold from the next claim on, and
    are audited with their ``reason`` (up to 1,024 bytes). A ``revision`` makes a change raise Conflict if the policy is
    no longer at it. They are not repeated when their connection is lost: raises Unavailable with ``outcome_unknown``,
    and ``budget`` tells what holds.
    """

    @property
    @abstractmethod
    def scope(self) -> str:
        """Whose queues these are."""

    @property
    @abstractmethod
    def _ops(self) -> AsyncOps: ...

    async def set_policy(
        self, queue: str, policy: Mapping[str, Any], *, reason: str | None = None, revision: int | None = None
    ) -> QueueAdmission:
        """Set the whole policy of a queue, which the first one creates. The answer says what is already used.

        A first policy admits nothing until the claims have ended that may not have seen it. This waits for them for a
        moment; if they last, the answer is ``opening`` and says who is ``awaited``.
        Raises InvalidArgument naming e.g. ``window.tz``, Conflict, Forbidden, Unavailable.
        """
        return await self._ops.set_policy(queue, policy, scope=self.scope, reason=reason, revision=revision)

    async def patch_policy(
        self, queue: str, patch: Mapping[str, Any], *, reason: str | None = None, revision: int | None = None
    ) -> QueueAdmission:
        """Change the fields that ``patch`` names, None clearing one; ``limits`` are replaced as a whole."""
        return await self._ops.patch_policy(queue, patch, scope=self.scope, reason=reason, revision=revision)

    async def clear_policy(
        self, queue: str, *, reason: str | None = None, revision: int | None = None
    ) -> QueueAdmission:
        """Take the policy away. What was charged stays on record. Raises NotFound without a policy, Conflict."""
        return await self._ops.clear_policy(queue, scope=self.scope, reason=reason, revision=revision)

    async def pause(self, queue: str, *, reason: str | None = None, until: datetime | None = None) -> QueueAdmission:
        """Admit nothing until ``until`` (an aware datetime), or until resumed. What runs goes on."""
        return await self._ops.pause(queue, scope=self.scope, reason=reason, until=until)

    async def resume(self, queue: str, *, reason: str | None = None) -> QueueAdmission:
        """End a pause. Raises Conflict if there is none."""
        return await self._ops.resume(queue, scope=self.scope, reason=reason)

    async def reset_usage(self, queue: str, *, period: str | None = None, reason: str | None = None) -> QueueAdmission:
        """Forgive what the current windows were charged, all of them or one ``period``'s. Raises Conflict if nothing was."""
        return await self._ops.reset_usage(queue, scope=self.scope, period=period, reason=reason)

    async def open_admission(self, queue: str) -> QueueAdmission:
        """Open a first policy whose answer was ``opening``, if it may be by now; claims do the same. Raises NotFound."""
        return await self._ops.open_admission(queue, scope=self.scope)

    async def demand(self, *queues: str, most: int = 100) -> Demand:
        """How many jobs of each queue could start now, counted to ``most`` (1 to 10,000). Only a claim decides."""
        return await self._ops.demand(queues, most, scope=self.scope)

    async def admission_status(self, queue: str | None = None) -> AdmissionStatus:
        """Policy, use and verdict of every queue that has a policy, or of one. Raises NotFound."""
        return await self._ops.admission_status(queue, scope=self.scope)

    async def budget(self, queue: str) -> Budget:
        """All about the budget of one queue, with its backlog and the last 30 windows. Raises NotFound."""
        return await self._ops.budget(queue, scope=self.scope)

    async def budget_audit(self, queue: str, *, limit: int = 50) -> BudgetAudit:
        """The last ``limit`` (1 to 200) changes of a queue's policy. Raises NotFound."""
        return await self._ops.budget_audit(queue, scope=self.scope, limit=limit)

    async def rehearse(self, queue: str, policy: Mapping[str, Any], *, days: int = 7) -> Rehearsal:
        """What a policy would have done with the claims of the last ``days`` (1 to 45). Changes nothing."""
        return await self._ops.rehearse(queue, policy, scope=self.scope, days=days)

    async def explain(self, job_id: int) -> Explanation:
        """Why a job does not run, when it will, and what would admit it now. Raises NotFound."""
        return await self._ops.explain(job_id, scope=self.scope)

    async def next_jobs(self, queue: str | None = None, *, limit: int = 20) -> NextJobs:
        """Up to ``limit`` (1 to 200) waiting jobs of the scope or a queue, in the order they are expected to run."""
        return await self._ops.next_jobs(queue, scope=self.scope, limit=limit)

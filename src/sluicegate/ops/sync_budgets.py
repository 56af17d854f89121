# Generated from ops/async_budgets.py by tools/unasync.py: change that file, then run it.
"""The verbs about budgets. Each takes the scope it acts in."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sluicegate.errors import SluicegateError
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
from sluicegate.ops import answers, validate
from sluicegate.ops import budget_requests as requests
from sluicegate.store.calls import SyncCalls, sync_pause
from sluicegate.store.sync_store import SyncStore

# How long, in seconds, a change waits before it asks again whether the claims in the air have ended; claims ask after that.
_OPENING_WAITS = (0.0, 0.02, 0.1, 0.3)


class SyncBudgetOps(ABC):
    """Policies and what is told about them.

    Changes are not repeated when their connection is lost: a second try would be audited a second time, or be refused
    because the first one took effect.
    """

    _store: SyncStore
    _calls: SyncCalls

    @abstractmethod
    def _ask_again(self, call: Callable[[], Any]) -> Any:
        """Send a call that is safe to repeat."""

    def set_policy(
        self, queue: str, policy: Mapping[str, Any], *, scope: str, reason: str | None, revision: int | None
    ) -> QueueAdmission:
        arguments = requests.policy(queue, policy, name="policy", reason=reason, revision=revision, scope=scope)
        return self._opened(queue, scope, self._calls.run(self._store.set_admission_policy(arguments)))

    def patch_policy(
        self, queue: str, patch: Mapping[str, Any], *, scope: str, reason: str | None, revision: int | None
    ) -> QueueAdmission:
        arguments = requests.policy(queue, patch, name="patch", reason=reason, revision=revision, scope=scope)
        return self._opened(queue, scope, self._calls.run(self._store.patch_admission_policy(arguments)))

    def clear_policy(self, queue: str, *, scope: str, reason: str | None, revision: int | None) -> QueueAdmission:
        arguments = requests.clear(queue, reason=reason, revision=revision, scope=scope)
        return QueueAdmission.from_dict(self._calls.run(self._store.clear_admission_policy(arguments)))

    def pause(self, queue: str, *, scope: str, reason: str | None, until: datetime | None) -> QueueAdmission:
        arguments = requests.pause(queue, reason=reason, until=until, scope=scope)
        return self._opened(queue, scope, self._calls.run(self._store.pause_queue(arguments)))

    def resume(self, queue: str, *, scope: str, reason: str | None) -> QueueAdmission:
        arguments = requests.change(queue, reason=reason, scope=scope)
        return QueueAdmission.from_dict(self._calls.run(self._store.resume_queue(arguments)))

    def reset_usage(self, queue: str, *, scope: str, period: str | None, reason: str | None) -> QueueAdmission:
        arguments = requests.reset(queue, period=period, reason=reason, scope=scope)
        return QueueAdmission.from_dict(self._calls.run(self._store.reset_usage(arguments)))

    def open_admission(self, queue: str, *, scope: str) -> QueueAdmission:
        arguments = requests.queue_of(queue, scope=scope)
        return QueueAdmission.from_dict(self._ask_again(lambda: self._store.open_admission(arguments)))

    def demand(self, queues: Sequence[str], most: int, *, scope: str) -> Demand:
        arguments = {
            "queues": validate.queue_names(queues),
            "most": validate.whole(most, "most", 1, 10_000),
            "scope": validate.scope(scope),
        }
        return Demand.from_dict(self._ask_again(lambda: self._store.demand(arguments)))

    def admission_status(self, queue: str | None, *, scope: str) -> AdmissionStatus:
        arguments = requests.queue_if_any(queue, scope=scope)
        return AdmissionStatus.from_dict(self._ask_again(lambda: self._store.admission_status(arguments)))

    def budget(self, queue: str, *, scope: str) -> Budget:
        arguments = requests.queue_of(queue, scope=scope)
        return Budget.from_dict(self._ask_again(lambda: self._store.budget_show(arguments)))

    def budget_audit(self, queue: str, *, scope: str, limit: int) -> BudgetAudit:
        arguments = requests.audit(queue, limit=limit, scope=scope)
        return BudgetAudit.from_dict(self._ask_again(lambda: self._store.budget_audit(arguments)))

    def rehearse(self, queue: str, policy: Mapping[str, Any], *, scope: str, days: int) -> Rehearsal:
        arguments = requests.rehearse(queue, policy, days=days, scope=scope)
        return Rehearsal.from_dict(self._ask_again(lambda: self._store.rehearse(arguments)))

    def explain(self, job_id: int, *, scope: str) -> Explanation:
        arguments = {"job_id": validate.row_id(job_id, "job_id"), "scope": validate.scope(scope)}
        return answers.explanation(self._ask_again(lambda: self._store.explain(arguments)))

    def next_jobs(self, queue: str | None, *, scope: str, limit: int) -> NextJobs:
        arguments = requests.next_jobs(queue, limit=limit, scope=scope)
        return NextJobs.from_dict(self._ask_again(lambda: self._store.next_jobs(arguments)))

    def _opened(self, queue: str, scope: str, answer: Any) -> QueueAdmission:
        """The status after a change that is committed. A first policy is opened now, if the claims in the air end soon."""
        found = QueueAdmission.from_dict(answer)
        with contextlib.suppress(SluicegateError):
            for wait in _OPENING_WAITS:
                if not found.opening:
                    break
                sync_pause(wait)
                found = self.open_admission(queue, scope=scope)
        return found

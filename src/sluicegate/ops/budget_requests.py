"""Calls about budgets, checked and shaped: each function gives the arguments of one SQL function."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sluicegate.model._record import Record
from sluicegate.ops import validate
from sluicegate.ops.json_text import encode

Arguments = Mapping[str, Any]

MAX_REASON_BYTES = 1024


def policy(queue: Any, wanted: Any, *, name: str, reason: Any, revision: Any, scope: str) -> Arguments:
    """``name`` is the argument that holds the policy: ``policy`` or ``patch``. Its fields are SQL's to judge."""
    return {**clear(queue, reason=reason, revision=revision, scope=scope), name: _document(wanted)}


def clear(queue: Any, *, reason: Any, revision: Any, scope: str) -> Arguments:
    return {
        **change(queue, reason=reason, scope=scope),
        "revision": None if revision is None else validate.whole(revision, "revision", 0, validate.MAX_ID),
    }


def change(queue: Any, *, reason: Any, scope: str) -> Arguments:
    return {
        **queue_of(queue, scope=scope),
        "reason": None if reason is None else validate.text(reason, "reason", MAX_REASON_BYTES),
    }


def pause(queue: Any, *, reason: Any, until: datetime | None, scope: str) -> Arguments:
    return {
        **change(queue, reason=reason, scope=scope),
        "until": None if until is None else validate.moment(until, "paused_until"),
    }


def reset(queue: Any, *, period: Any, reason: Any, scope: str) -> Arguments:
    return {
        **change(queue, reason=reason, scope=scope),
        "period": None if period is None else validate.text(period, "period", 16),
    }


def queue_of(queue: Any, *, scope: str) -> Arguments:
    return {"queue": validate.queue_name(queue), "scope": validate.scope(scope)}


def queue_if_any(queue: Any, *, scope: str) -> Arguments:
    return {"queue": None if queue is None else validate.queue_name(queue), "scope": validate.scope(scope)}


def audit(queue: Any, *, limit: Any, scope: str) -> Arguments:
    return {**queue_of(queue, scope=scope), "limit": validate.whole(limit, "limit", 1, 200)}


def next_jobs(queue: Any, *, limit: Any, scope: str) -> Arguments:
    return {**queue_if_any(queue, scope=scope), "limit": validate.whole(limit, "limit", 1, 200)}


def rehearse(queue: Any, wanted: Any, *, days: Any, scope: str) -> Arguments:
    return {
        **queue_of(queue, scope=scope),
        "policy": _document(wanted),
        "days": validate.whole(days, "days", 1, 45),
    }


def _document(wanted: Any) -> str:
    rule = 'Pass a mapping such as {"max_in_flight": 4}.'
    if not isinstance(wanted, Mapping):
        validate.refuse("policy", f"is {validate.shown(wanted)}, not a mapping", rule)
    return encode({name: _plain(value) for name, value in wanted.items()}, "policy")


def _plain(value: Any) -> Any:
    """A member of a policy as JSON has it: what the model has for a window or a limit may stand for one."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, datetime):
        return validate.moment(value, "policy")
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value] if all(isinstance(m, Record | Mapping) for m in value) else value
    if isinstance(value, Mapping):
        return {name: member.to_dict() if isinstance(member, Record) else member for name, member in value.items()}
    return value

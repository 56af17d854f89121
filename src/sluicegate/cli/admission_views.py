"""Budgets and what they hold back, as people see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate.cli.output import count, local

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sluicegate.model import (
        ClosedGate,
        Deferral,
        Gate,
        JobAdmission,
        QueueAdmission,
        ShadowLimit,
        Verdict,
        WindowLimit,
    )

_REASONS = {
    "admission_unavailable": "its policy cannot be evaluated",
    "paused": "paused",
    "window_exhausted": "its budget is used up",
    "headroom_low": "headroom is low",
    "in_flight_full": "as many run as may run at once",
}
# When nobody knows the time.
_UNTIL = {
    "admission_unavailable": "until what `sluicegate doctor` names is mended",
    "in_flight": "until enough of them have ended",
    "in_flight_full": "until enough of them have ended",
}


def why(reason: str | None, gates: Sequence[ClosedGate] = ()) -> str:
    """A reason in words; a limit of 0, which closes a queue as a pause does, is named instead: no ``resume`` ends it."""
    if reason == "paused" and (zeros := zero_limits(gates)):
        return f"its limit is {', '.join(zeros)}"
    return _REASONS.get(reason or "", (reason or "unknown").replace("_", " "))


def zero_limits(gates: Sequence[ClosedGate]) -> list[str]:
    if any(one.gate == "pause" and getattr(one, "closed", True) for one in gates):
        return []
    return [
        "0 at once" if one.gate == "in_flight" else f"0 {'an' if one.period == 'hour' else 'a'} {one.period}"
        for one in gates
        if one.limit == 0 and getattr(one, "mode", "enforce") == "enforce"
    ]


def opens(at: datetime | None, reason: str | None, *, exact: bool) -> str:
    """When something that is closed for ``reason`` (or by a gate of that name) opens, as the end of a sentence."""
    if at is None:
        return _UNTIL.get(reason or "", "until it is opened")
    return f"until {local(at)}" + ("" if exact else " or so")


def deferred(entry: Deferral) -> str:
    """A closed queue in a line."""
    waiting = count(entry.pending, "job") + ("" if entry.pending_exact else " or more")
    said = _coded(entry.reason, entry.all, ", ".join(map(gate, entry.all)))
    return f"{entry.queue} is deferred: {said}, {opens(entry.next_eligible_at, entry.reason, exact=entry.exact)}" + (
        f"; {waiting} waiting" if entry.pending else ""
    )


def _coded(reason: str | None, gates: Sequence[ClosedGate], *details: str) -> str:
    """A reason in words with its code, which scripts know it by, and more details; nothing is said twice."""
    said = why(reason, gates)
    more = "; ".join(text for text in (reason, *details) if text and text != said)
    return f"{said} ({more})" if more else said


def gate(found: ClosedGate) -> str:
    """What is used of a limit."""
    match found.gate:
        case "window":
            return f"{found.used:,} of {found.limit:,} this {found.period}"
        case "in_flight":
            return f"{found.used:,} of {found.limit:,} in flight"
        case "pause":
            return "paused"
        case _:
            return "policy unreadable"


def sentence(found: QueueAdmission) -> str:
    """The policy of a queue as the sentence it stands for."""
    if found.status == "ungoverned":
        return f"{found.queue} has no policy: as much may start as is asked for."
    parts = [limit(one) for one in found.limits]
    if found.max_in_flight is not None:
        shadow = " (counted only)" if found.in_flight_mode == "shadow" else ""
        parts.append(f"at most {found.max_in_flight:,} at once{shadow}")
    if found.paused:
        ends = f" until {local(found.paused_until)}" if found.paused_until is not None else " until resumed"
        parts.append(f"paused{ends}" + (f" ({found.paused_reason})" if found.paused_reason else ""))
    if not parts:
        return f"{found.queue} has a policy that cannot be read."
    return f"{found.queue}: {', '.join(parts)}."


def limit(found: WindowLimit) -> str:
    """A window limit in words."""
    window = found.window
    since = {
        "hour": f"from minute {window.start[3:]}",
        "day": f"from {window.start}",
        "week": f"from {window.weekday} {window.start}",
        "month": f"from day {window.day} {window.start}",
    }[window.period]
    article = "an" if window.period == "hour" else "a"
    shadow = " (counted only)" if found.mode == "shadow" else ""
    return f"at most {found.max_claims_per_window:,} {article} {window.period} {since} {window.tz}{shadow}"


def used(gates: tuple[Gate, ...]) -> list[str]:
    """What is used of each limit, a line each."""
    lines = []
    for found in gates:
        if found.gate == "pause":
            continue
        closed = ", closed" if found.closed else ", counted only" if found.mode == "shadow" else ""
        resets = f", until {local(found.until)}" if found.gate == "window" and found.until is not None else ""
        lines.append(f"  already used: {gate(found)}{closed}{resets}")
    return lines


def would_have(found: ShadowLimit) -> str:
    """What a limit that only counts would have refused, in a line."""
    since = "" if found.since is None else f" since {local(found.since)}"
    if found.gate == "in_flight":
        return f"  would have refused: {found.refused:,}{since}, at most {found.limit:,} in flight (counted only)"
    before = "" if found.refused_before is None else f", {found.refused_before:,} in the windows before{since}"
    return f"  would have refused: {found.refused:,} of this {found.period}{before}, at most {found.limit:,} (counted only)"


def standing(found: QueueAdmission) -> str:
    """Whether a queue is open, in words."""
    verdict = found.verdict
    if verdict is not None and verdict.fault is not None:
        return f"closed, {why(verdict.reason)} ({verdict.reason}): {verdict.fault.removesuffix('.')}"
    if found.opening and not (verdict is not None and verdict.state == "deferred"):
        return "not open yet, its first policy waits for claims that began before it"
    return "open" if verdict is None else standing_of(verdict, found.gates)


def standing_of(verdict: Verdict | JobAdmission, gates: Sequence[ClosedGate] = ()) -> str:
    """What a verdict says, in words."""
    if verdict.state == "admitted":
        return "open"
    until = opens(verdict.next_eligible_at, verdict.reason, exact=verdict.exact)
    return f"closed, {_coded(verdict.reason, gates)}, {until}"


def change(found: QueueAdmission) -> list[str]:
    """What a change has come to."""
    return [sentence(found), *used(found.gates), *awaited(found)]


def forgiven(found: QueueAdmission) -> list[str]:
    """What was forgiven, a line for each window."""
    return [
        f"  forgiven: {one.amount:,} of this {one.period} ({one.tz}), which began {local(one.starts)}"
        for one in found.forgiven
    ]


def new_queue(queue: str, *, is_new: bool) -> list[str]:
    """A policy makes the queue it is for, also when its name was mistyped."""
    return [f"  queue {queue} is new: there was none of this name until now"] if is_new else []


def awaited(found: QueueAdmission) -> list[str]:
    """Who keeps a first policy from opening, a line each."""
    if not found.opening:
        return []
    lines = ["  not open yet: nothing starts until the claims have ended that began before this first policy"]
    for one in found.awaited:
        who = f"pid {one.pid}" if one.pid is not None else f"prepared transaction {one.prepared or ''}".rstrip()
        details = ", ".join(
            text
            for text in (
                one.application,
                one.state,
                f"in its transaction since {local(one.since)}" if one.since is not None else None,
            )
            if text
        )
        lines.append(f"    waits for {who}" + (f" ({details})" if details else ""))
    return lines

"""JSON on its way to the database: checked without recursion, then written once."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from sluicegate.ops.text import storable_value
from sluicegate.ops.validate import refuse, shown, utf8

MAX_JSON_BYTES = 1_048_576
MAX_NESTING = 100


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value that ``encode`` has written already, so that it is not written twice."""

    text: str


# Where a value stands inside its field: (the trail of what holds it, its key or index); None at the top.
_Trail = tuple[Any, "str | int"] | None


def encode(value: Any, field: str, *, forgiving: bool = False) -> str:
    """``value`` as JSON text of at most 1 MiB in UTF-8, nested at most 100 deep.

    Raises InvalidArgument for anything that is not JSON or that PostgreSQL cannot store. With ``forgiving``, for a
    result that must not stop a job from finishing, text that cannot be stored is escaped and NaN becomes text.
    """
    if value is None:
        return "null"
    if isinstance(value, Encoded):
        return value.text
    _check(value, field, forgiving=forgiving)
    if forgiving:
        value = storable_value(value)
    try:
        # The separators are those of PostgreSQL's own jsonb output, so that both sides measure the same text.
        encoded = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        refuse(field, "holds a number of more than 4,300 digits", "Send it as text.")
    if len(encoded.encode()) > MAX_JSON_BYTES:
        _refuse_size(field)
    return encoded


def _check(value: Any, field: str, *, forgiving: bool) -> None:
    """Walk every member with a stack of our own: neither depth, nor breadth, nor a value inside itself can hurt."""
    room = MAX_JSON_BYTES
    waiting: list[tuple[Any, int, _Trail]] = [(value, 1, None)]
    while waiting:
        member, depth, trail = waiting.pop()
        if member is None or isinstance(member, int):
            room -= 1
        elif isinstance(member, str):
            room -= len(member) + 2
            if not forgiving:
                utf8(member, field, _at(field, trail))
        elif isinstance(member, float):
            room -= 1
            if not (forgiving or math.isfinite(member)):
                refuse(field, f"holds {member}{_at(field, trail)}, which is not JSON", "Send null or text instead.")
        elif isinstance(member, dict | list | tuple):
            room -= max(2, 2 * len(member))
            if depth > MAX_NESTING:
                refuse(
                    field,
                    f"is nested more than {MAX_NESTING} deep",
                    "Flatten it, or send the inner part as text.",
                )
            if room >= 0:
                waiting.extend(_members(member, depth + 1, field, trail, forgiving=forgiving))
        else:
            refuse(
                field,
                f"holds {shown(member)}{_at(field, trail)}: {type(member).__name__} is not JSON",
                "Send dicts, lists, text, numbers, booleans and None; convert everything else first.",
            )
        if room < 0:
            _refuse_size(field)


def _members(
    holder: dict[Any, Any] | list[Any] | tuple[Any, ...], depth: int, field: str, trail: _Trail, *, forgiving: bool
) -> list[tuple[Any, int, _Trail]]:
    if not isinstance(holder, dict):
        return [(member, depth, (trail, index)) for index, member in enumerate(holder)]
    for key in holder:
        if not isinstance(key, str):
            refuse(field, f"has the key {shown(key)}{_at(field, trail)}, which is not text", "JSON keys are text.")
        if not forgiving:
            utf8(key, field, f" in a key{_at(field, trail)}")
    return [(member, depth, (trail, key)) for key, member in holder.items()]


def _at(field: str, trail: _Trail) -> str:
    """Where in the field, e.g. `` at payload["files"][3]``; empty at its top. Long ways are cut at their start."""
    steps: list[str] = []
    while trail is not None and len(steps) < 6:
        trail, key = trail
        steps.append(f"[{shown(key)}]")
    if not steps:
        return ""
    return f" at {field}{'…' if trail is not None else ''}{''.join(reversed(steps))}"


def _refuse_size(field: str) -> None:
    refuse(
        field,
        f"is larger than {MAX_JSON_BYTES:,} bytes (1 MiB) of JSON",
        "Store the data elsewhere and send a reference to it.",
    )

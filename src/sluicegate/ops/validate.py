"""What a call may say. Everything is checked here before anything is sent: bad input changes nothing.

Each function returns the value in the form it is sent in, or raises InvalidArgument naming ``field``. The database
checks again, for callers in other languages; these checks are earlier, and give the field in Python's own terms.
"""

from __future__ import annotations

import math
import operator
import re
import reprlib
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NoReturn

from sluicegate.errors import InvalidArgument
from sluicegate.model import JOB_STATES, Backoff

MAX_ID = 2**63 - 1
MAX_WAIT_SECONDS = 2_592_000  # 30 days

_SLUG = "[a-z0-9][a-z0-9._-]{0,62}"
_SCOPE = re.compile(f"endpoint:{_SLUG}(@{_SLUG})?|team:{_SLUG}")


def refuse(field: str, problem: str, rule: str) -> NoReturn:
    """Raise InvalidArgument: ``field`` ``problem``; the rule says what would be accepted."""
    raise InvalidArgument(f"{field} {problem}.", field=field, next_step=rule)


def shown(value: object) -> str:
    """``value`` as a message may show it: short, printable, on one line, whatever it is."""
    try:
        return reprlib.repr(value)
    except Exception:  # noqa: BLE001 - a number of too many digits, or what somebody's own __repr__ raises
        return f"something of type {type(value).__name__}"


def whole(value: Any, field: str, least: int, most: int) -> int:
    """A whole number from ``least`` to ``most``; a bool or a float is not one, even if it is integral."""
    rule = f"{field} is a whole number from {least} to {most}."
    if isinstance(value, bool):
        refuse(field, f"is {value}", rule)
    try:
        number = operator.index(value)
    except TypeError:
        refuse(field, f"is {shown(value)}, not a whole number", rule)
    if not least <= number <= most:
        refuse(field, f"is {shown(number)}, which is out of range", rule)
    return number


def row_id(value: Any, field: str) -> int:
    """The id of a job: a positive bigint."""
    return whole(value, field, 1, MAX_ID)


def seconds(value: Any, field: str, most: float = MAX_WAIT_SECONDS) -> float:
    """A number of seconds from 0 to ``most``, which may be fractional."""
    rule = f"{field} is a number of seconds from 0 to {most:.0f}."
    # A whole number is finite, and may be too large to become a float.
    finite = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    if isinstance(value, bool) or not finite:
        refuse(field, f"is {shown(value)}, not a finite number", rule)
    if not 0 <= value <= most:
        refuse(field, f"is {shown(value)}, which is out of range", rule)
    return float(value)


def text(value: Any, field: str, most: int, *, least: int = 0) -> str:
    """Text of ``least`` to ``most`` bytes in UTF-8, without NUL and lone surrogates."""
    rule = f"{field} is text of {least} to {most} bytes in UTF-8."
    if not isinstance(value, str):
        refuse(field, f"is {shown(value)}, not text", rule)
    size = len(utf8(value, field))
    if not least <= size <= most:
        refuse(field, f"has {size:,} bytes", rule)
    return value


def utf8(value: str, field: str, where: str = "") -> bytes:
    """``value`` in UTF-8; refuses what PostgreSQL cannot store. ``where`` says at which place of the field."""
    if "\0" in value:
        refuse(field, f"holds a NUL character (\\u0000){where}, which PostgreSQL cannot store", "Leave it out.")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        found = f"\\u{ord(value[error.start]):04x}"
        refuse(field, f"holds half a character (the lone surrogate {found}){where}", "Send text that is valid Unicode.")


def queue_name(value: Any, field: str = "queue") -> str:
    """A queue's name: 1 to 128 bytes, without white space, control characters and '/'."""
    rule = "A queue name is 1 to 128 bytes of UTF-8 without white space, control characters or a slash."
    if not isinstance(value, str):
        refuse(field, f"is {shown(value)}, not text", rule)
    size = len(utf8(value, field))
    if not 1 <= size <= 128:
        refuse(field, f"has {size:,} bytes", rule)
    for character in value:
        if character == "/" or character.isspace() or unicodedata.category(character) == "Cc":
            refuse(field, f"is {shown(value)}, which holds {shown(character)}", rule)
    return value


def queue_names(values: Iterable[Any]) -> list[str]:
    """The queues to claim from: 1 to 1,000 names."""
    names = [queue_name(value, f"queues[{index}]") for index, value in enumerate(values)]
    if not 1 <= len(names) <= 1000:
        refuse("queues", f"names {len(names):,} queues", "A claim names 1 to 1,000 queues.")
    return names


def scope(value: Any) -> str:
    """A scope in text form: ``endpoint:SLUG``, ``endpoint:SLUG@OWNER`` or ``team:SLUG``."""
    if not isinstance(value, str) or not _SCOPE.fullmatch(value):
        refuse(
            "scope",
            f"is {shown(value)}, which is malformed",
            "Write endpoint:SLUG, endpoint:SLUG@OWNER or team:SLUG, slugs in lower case.",
        )
    return value


def moment(value: Any, field: str) -> str:
    """An aware datetime within the years 1 to 9999, as ISO 8601 in UTC."""
    if not isinstance(value, datetime):
        refuse(field, f"is {shown(value)}, not a datetime", f"{field} is a datetime with a zone.")
    if value.utcoffset() is None:
        refuse(
            field,
            f"is {value.isoformat()}, a time without a zone",
            "Say which zone it is in, e.g. datetime.now(timezone.utc), or local_time.astimezone().",
        )
    try:
        return value.astimezone(UTC).isoformat()
    except OverflowError:
        refuse(field, f"is {value.isoformat()}, out of range", f"{field} lies within the years 1 to 9999, in UTC.")


def parsed_moment(value: str, field: str) -> datetime:
    """An ISO 8601 time with a zone, as a datetime; for the faces that get times as text."""
    rule = f"{field} is a time with a zone within the years 1 to 9999, e.g. 2030-01-31T09:30:00+01:00."
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        refuse(field, f"is {shown(value)}, which is not such a time", rule)
    if parsed.utcoffset() is None:
        refuse(field, f"is {value}, a time without a zone", "Add its zone, e.g. 2026-12-01T16:00:00+01:00.")
    moment(parsed, field)
    return parsed


def tags(values: Any, field: str) -> list[str]:
    """At most 32 tags of 1 to 64 bytes."""
    rule = "Tags are at most 32 texts of 1 to 64 bytes."
    if isinstance(values, str) or not isinstance(values, Iterable):
        refuse(field, f"is {shown(values)}, not a sequence of texts", rule)
    checked = [text(value, f"{field}[{index}]", 64, least=1) for index, value in enumerate(values)]
    if len(checked) > 32:
        refuse(field, f"holds {len(checked)} tags", rule)
    return checked


def backoff(value: Any, field: str) -> dict[str, float]:
    """A job's own backoff, as the JSON object SQL takes."""
    if not isinstance(value, Backoff):
        refuse(field, f"is {shown(value)}, not a Backoff", "Pass sluicegate.Backoff(base_seconds=…, max_seconds=…).")
    shaped = {"base_seconds": seconds(value.base_seconds, f"{field}.base_seconds")}
    if value.max_seconds is not None:
        shaped["max_seconds"] = seconds(value.max_seconds, f"{field}.max_seconds")
    return shaped


def job_state(value: Any) -> str:
    """One of the six states of a job."""
    if value not in JOB_STATES:
        refuse("state", f"is {shown(value)}", f"A state is one of {', '.join(JOB_STATES)}.")
    return str(value)


def flag(value: Any, field: str) -> bool:
    """True or False, and nothing that merely looks like it."""
    if not isinstance(value, bool):
        refuse(field, f"is {shown(value)}, not a bool", f"{field} is True or False.")
    return value


def given_tags(tags: Any) -> tuple[str, ...]:
    """Tags as given; what is no sequence, and a lone text, which would be one of letters, is left to be refused by name."""
    return tags if isinstance(tags, str) or not isinstance(tags, Iterable) else tuple(tags)  # type: ignore[return-value]

"""Text that must reach the database whatever it holds: a job has to finish even if its last words are unusable."""

from __future__ import annotations

import math
import re
from typing import Any

MAX_ERROR_BYTES = 16_384
MAX_SUMMARY_BYTES = 2_048

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """``text`` with what PostgreSQL cannot store, NUL and lone surrogates, as visible escapes: ``\\u0000``, ``\\ud800``."""
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def clipped(text: str, most: int) -> str:
    """``text`` in at most ``most`` bytes of UTF-8: the middle is left out with a note, both ends stay.

    The first third says what was going on, the last two thirds hold what a traceback or a command ends with.
    """
    encoded = text.encode()
    if len(encoded) <= most:
        return text
    note = f"\n… {len(encoded):,} bytes in all, the middle is left out …\n"
    room = most - len(note.encode())
    head, tail = encoded[: room // 3], encoded[-(room - room // 3) :]
    return head.decode(errors="ignore") + note + tail.decode(errors="ignore")


def storable_value(value: Any) -> Any:
    """A JSON value with its texts and keys storable, NaN and the infinities as texts; other values are left alone.

    The value must have been found not to nest too deep (``json_text.encode`` does that first).
    """
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {storable_value(key): storable_value(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [storable_value(member) for member in value]
    return value

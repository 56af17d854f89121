"""How much a run does: small counts by default, full ones under ``./dev test --all``."""

import os


def full() -> bool:
    """Whether this run does the full counts (``./dev test --all``), in which nothing may be skipped."""
    return os.environ.get("SLUICEGATE_TEST_FULL") == "1"


def rounds(small: int, everything: int) -> int:
    """``everything`` in a full run, ``small`` otherwise."""
    return everything if full() else small

"""An attempt that is over here and has still to be reported."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.model import Claim, FinishItem


@dataclass(frozen=True, slots=True)
class Ended:
    """A finish that has still to be reported.

    ``seconds`` is how long the command ran, None if it never did; ``exit_code`` what it exited with, if it did.
    """

    claim: Claim
    item: FinishItem
    seconds: float | None = None
    exit_code: int | None = None

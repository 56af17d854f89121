"""What the dispatcher asks for, and from whom: whoever has slots says what to claim, starts it, and says when to ask again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sluicegate.model import Claim, ClaimAnswer, ClaimRequest

FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Plan:
    """Claims to make now, each for no more jobs than permits are held for it; without any, for how long to wait first, or None: no more."""

    asks: tuple[ClaimRequest, ...] = ()
    wait: float | None = FOREVER


class Slots(Protocol):
    """Places where jobs run, at most one in each."""

    @property
    def running(self) -> int:
        """How many are taken."""

    async def plan(self, finishing: Mapping[str, int], unreported: Mapping[str, int]) -> Plan:
        """What to claim now. The permits for it are held until ``heard``, or ``dropped``. Raises Unavailable.

        ``finishing``: of each queue, how many finishes the same call will report before it claims; ``unreported``: how
        many it will not, though their jobs have ended. To the database those still run, so they still take a slot.
        """

    def start(self, claim: Claim, *, sent_at: float, length: float) -> None:
        """Do the job, with one of the permits. Its lease lasts ``length`` seconds from ``sent_at`` (``time.monotonic()``)."""

    def heard(self, asks: Sequence[ClaimRequest], answers: Sequence[ClaimAnswer], *, idle: bool) -> float | None:
        """What came has been started: the other permits are free again. How long to wait before the next plan.

        ``idle``: nothing runs and no finish is left to report. None means that nothing more is to be claimed.
        """

    def dropped(self, asks: Sequence[ClaimRequest]) -> None:
        """These claims will have no answer."""

    def look(self, *, opened: bool = False) -> None:
        """What is due may have changed, and may change again in a moment; ``opened``: a policy may have too."""

"""What somebody has to do now and then, and every worker does: ending lapsed claims, and retention."""

from __future__ import annotations

import random
import time

from sluicegate.client import Client
from sluicegate.errors import SluicegateError, Unavailable
from sluicegate.worker.events import Tally
from sluicegate.worker.loop import Loop

REAP_SECONDS = 30.0
PRUNE_SECONDS = 3600.0
_FIRST_PRUNE = 60.0
_PRUNE_ROWS = 10_000


class Housekeeping:
    """Reaps every half minute and prunes every hour. Nothing depends on either; what refuses them is told once.

    A database that cannot be reached is the dispatcher's to tell of.
    """

    def __init__(self, client: Client, tally: Tally) -> None:
        self._client = client
        self._tally = tally
        self._prune_at = time.monotonic() + _FIRST_PRUNE
        self.loop = Loop(self._tick)

    async def _tick(self) -> float:
        try:
            await self._client.reap()
        except Unavailable:
            pass
        except SluicegateError as error:
            self._tally.housekeeping_refused(error)
        if time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + await self._prune()
        return REAP_SECONDS * random.uniform(0.8, 1.2)

    async def _prune(self) -> float:
        """Prune once; how many seconds later it is worth while again."""
        try:
            pruned = await self._client.prune(limit=_PRUNE_ROWS)
        except Unavailable:
            return _FIRST_PRUNE
        except SluicegateError as error:
            self._tally.housekeeping_refused(error)
            return PRUNE_SECONDS
        more = max(pruned.to_dict().values()) >= _PRUNE_ROWS
        return REAP_SECONDS if more else PRUNE_SECONDS

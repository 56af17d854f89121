"""What somebody has to do now and then, and every worker does: ending lapsed claims, and retention."""

from __future__ import annotations

import contextlib
import random
import time

from sluicegate.client import Client
from sluicegate.errors import SluicegateError, Unavailable
from sluicegate.worker.loop import Loop

REAP_SECONDS = 30.0
PRUNE_SECONDS = 3600.0
_FIRST_PRUNE = 60.0
_PRUNE_ROWS = 10_000


class Housekeeping:
    """Reaps every half minute and prunes every hour, where its role may. Nothing depends on either."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._prune_at = time.monotonic() + _FIRST_PRUNE
        self.loop = Loop(self._tick)

    async def _tick(self) -> float:
        with contextlib.suppress(SluicegateError):
            await self._client.reap()
        if time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + await self._prune()
        return REAP_SECONDS * random.uniform(0.8, 1.2)

    async def _prune(self) -> float:
        """Prune once; how many seconds later it is worth while again."""
        try:
            pruned = await self._client.prune(limit=_PRUNE_ROWS)
        except Unavailable:
            return _FIRST_PRUNE
        except SluicegateError:
            # A worker's role may not; whoever runs `sluicegate` as administrator does it then.
            return PRUNE_SECONDS
        more = max(pruned.jobs, pruned.attempts, pruned.requests, pruned.late_calls) >= _PRUNE_ROWS
        return REAP_SECONDS if more else PRUNE_SECONDS

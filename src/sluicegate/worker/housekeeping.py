"""What somebody has to do now and then, and every worker does: ending lapsed claims, and retention."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from sluicegate.client import Client
from sluicegate.errors import SluicegateError, Unavailable
from sluicegate.worker.events import Tally
from sluicegate.worker.loop import Loop

REAP_SECONDS = 30.0
PRUNE_SECONDS = 3600.0
_FIRST_PRUNE = 60.0
_PRUNE_ROWS = 10_000
# Much to delete takes its time; a connection that says nothing for so long, in seconds, is dead.
_PATIENCE = 300.0


class Housekeeping:
    """Reaps every half minute and prunes every hour. Nothing depends on either; what refuses them is told once.

    Whoever has nothing else to ask learns here that the database is away; ``on_back`` is called when it is back.
    """

    def __init__(self, client: Client, tally: Tally, on_back: Callable[[], None]) -> None:
        self._client = client
        self._tally = tally
        self._on_back = on_back
        self._prune_at = time.monotonic() + _FIRST_PRUNE
        self.loop = Loop(self._tick, patience=_PATIENCE)

    async def _tick(self) -> float:
        try:
            await self._client.reap()
        except SluicegateError as error:
            if isinstance(error, Unavailable):
                self._tally.database_away(error)
                raise
            self._tally.housekeeping_refused(error)
        if self._tally.away is not None:
            self._tally.database_back()
            self._on_back()
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

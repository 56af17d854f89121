"""Queues that are left alone for a while, because asking them failed or kept the call waiting."""

from __future__ import annotations

# For so many seconds after an error, unless there is news.
_AFTER_ERROR = 1.0
# One that somebody kept locked, with all others waiting for it: first so long, then twice as long each time, to the longest.
_HELD_FIRST = 0.05
_HELD_LONGEST = 0.5


class Rests:
    """Which queues are not asked, and for how long still. All times are seconds of one steady clock."""

    def __init__(self) -> None:
        self._failed: dict[str, float] = {}
        self._held: dict[str, float] = {}
        self._pause: dict[str, float] = {}
        self._news_at = float("-inf")

    def answered(self, queue: str) -> None:
        """It answered, and at once."""
        self._failed.pop(queue, None)
        self._held.pop(queue, None)
        self._pause.pop(queue, None)

    def failed(self, queue: str, *, sent_at: float, now: float) -> None:
        """Asking it failed. News that came after the call was sent may be of what has ended the trouble."""
        if self._news_at <= sent_at:
            self._failed[queue] = now + _AFTER_ERROR

    def held(self, queue: str, now: float) -> None:
        """Another transaction kept it locked for as long as the call would wait."""
        pause = self._pause.get(queue, _HELD_FIRST)
        self._pause[queue] = min(2 * pause, _HELD_LONGEST)
        self._held[queue] = now + pause

    def news(self, now: float, *, opened: bool) -> None:
        """There may be more to do; ``opened``: a policy was changed, so whoever held a queue locked may have let it go."""
        self._news_at = now
        self._failed.clear()
        if opened:
            self._held.clear()

    def left(self, now: float) -> dict[str, float]:
        """The queues that rest, each with the seconds it still does."""
        until = {
            queue: max(self._failed.get(queue, 0.0), self._held.get(queue, 0.0)) for queue in self._failed | self._held
        }
        return {queue: at - now for queue, at in until.items() if at > now}

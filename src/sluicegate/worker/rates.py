"""A token bucket: how many jobs of a queue this process may start."""

from __future__ import annotations


class Rate:
    """``per_second`` tokens a second, at most ``burst`` saved up. Times are seconds of any steady clock."""

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self.per_second = per_second
        self._burst = burst
        self._tokens = float(burst)
        self._at = now

    def available(self, now: float) -> int:
        """Whole tokens."""
        self._tokens = min(float(self._burst), self._tokens + max(0.0, now - self._at) * self.per_second)
        self._at = now
        # What adds up to a token in several sums is one.
        return int(self._tokens + 1e-9)

    def take(self, number: int) -> None:
        self._tokens -= number

    def give_back(self, number: int) -> None:
        """Tokens that were not needed."""
        self._tokens = min(float(self._burst), self._tokens + number)

    def wait(self, now: float) -> float:
        """Seconds until there is a token."""
        return 0.0 if self.available(now) > 0 else (1 - self._tokens) / self.per_second

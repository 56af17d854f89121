"""Running works in turns: every round runs each of them for some seconds, and the median over the rounds is the figure."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

# One turn of a client: how many jobs it moved.
Step = Callable[[], Awaitable[int]]
_WARM_UP = 6


class RanDry(Exception):
    """No job is left to move: the clock stops here."""


class Work(Protocol):
    """Something with a rate. ``key`` is unique; ``per_step`` is how many jobs one step moves at most."""

    key: str
    per_step: int

    async def open(self, depth: int) -> list[Step]:
        """Make room for ``depth`` jobs to be moved, and connect the clients: one step function each."""

    async def close(self) -> None: ...


@dataclass
class Rates:
    """Jobs/s of one work, one number a round."""

    rounds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def ratio(rates: Rates, floor: Rates) -> float:
    """The median of the rounds' ratios: both sides of one ratio ran within seconds of each other."""
    return statistics.median(one / other for one, other in zip(rates.rounds, floor.rounds, strict=True))


async def run_once(work: Work, seconds: float, guess: float) -> float:
    """Jobs/s of one run. ``guess`` is the rate expected, from which the number of jobs to prepare follows."""
    steps = await work.open(int(guess * seconds * 1.7) + 400 * work.per_step)
    try:
        for step in steps:
            for _ in range(_WARM_UP):
                await step()
        started = time.perf_counter()
        ends: list[float] = []
        done = 0

        async def client(step: Step) -> None:
            nonlocal done
            while not ends and time.perf_counter() - started < seconds:
                try:
                    done += await step()
                except RanDry:
                    ends.append(time.perf_counter())

        await asyncio.gather(*(client(step) for step in steps))
        return done / ((ends[0] if ends else time.perf_counter()) - started)
    finally:
        await work.close()


async def run(
    works: Sequence[Work], *, rounds: int, seconds: float, progress: Callable[[str], None]
) -> dict[str, Rates]:
    """Run every work ``rounds`` times for ``seconds``, taking turns; returns their rates by key."""
    rates = {work.key: Rates() for work in works}
    for number in range(rounds):
        # Every second round backwards, so that none always runs after the same neighbour.
        for work in works if number % 2 == 0 else reversed(works):
            seen = rates[work.key].rounds
            progress(f"round {number + 1} of {rounds}: {work.key}")
            guess = max(seen) if seen else (50_000 if work.per_step >= 100 else 4_000)
            seen.append(await run_once(work, seconds, guess))
    return rates

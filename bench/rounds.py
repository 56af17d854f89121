"""Running works in turns: every round runs each of them for some seconds, and the median over the rounds is the figure."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bench.work import RanDry, Step, Work

_WARM_UP = 2


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
    steps = await work.prepare(int(guess * seconds * 1.6) + 100 * work.per_step)
    for _ in range(_WARM_UP):
        await asyncio.gather(*(step() for step in steps))
    started = time.perf_counter()
    ends: list[float] = []
    done = 0

    async def client(step: Step) -> None:
        nonlocal done
        while not ends and time.perf_counter() - started < seconds:
            try:
                # Not in one line: "done +=" would read the sum before it waits.
                moved = await step()
            except RanDry:
                ends.append(time.perf_counter())
            else:
                done += moved

    await asyncio.gather(*(client(step) for step in steps))
    return done / ((ends[0] if ends else time.perf_counter()) - started)


async def run(
    works: Sequence[Work],
    *,
    rounds: int,
    seconds: float,
    before: Callable[[], Awaitable[None]],
    progress: Callable[[str], None],
) -> dict[str, Rates]:
    """Run every work ``rounds`` times for ``seconds``, taking turns; returns their rates by key.

    ``before`` runs before each round.
    """
    rates = {work.key: Rates() for work in works}
    for number in range(rounds):
        await before()
        # Every second round backwards, so that none always runs after the same neighbour.
        for work in works if number % 2 == 0 else reversed(works):
            seen = rates[work.key].rounds
            progress(f"round {number + 1} of {rounds}: {work.key}")
            guess = max(seen) if seen else (40_000 if work.per_step >= 100 else 3_000)
            seen.append(await run_once(work, seconds, guess))
    return rates

"""Running figures in turns: every round runs each of them for some seconds, and the median over the rounds is the figure."""

import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bench.work import Figure


@dataclass
class Rates:
    """Jobs/s of one figure, one number a round."""

    rounds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def ratio(rates: Rates, floor: Rates) -> float:
    """The median of the rounds' ratios: both sides of one ratio ran within seconds of each other."""
    return statistics.median(one / other for one, other in zip(rates.rounds, floor.rounds, strict=True))


async def run(
    figures: Sequence[Figure],
    *,
    rounds: int,
    seconds: float,
    before: Callable[[], Awaitable[None]],
    progress: Callable[[str], None],
) -> dict[str, Rates]:
    """Run every figure ``rounds`` times for ``seconds``, taking turns; returns their rates by key.

    ``before`` runs before each round.
    """
    rates = {figure.key: Rates() for figure in figures}
    for number in range(rounds):
        await before()
        # Every second round backwards, so that none always runs after the same neighbour.
        for figure in figures if number % 2 == 0 else reversed(figures):
            seen = rates[figure.key].rounds
            progress(f"round {number + 1} of {rounds}: {figure.key}")
            seen.append(await figure.rate(seconds, max(seen) if seen else figure.guess))
    return rates

"""What a figure is measured by: anything with a rate, or some clients of one driver, each repeating one step."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from bench.drivers import Clients, Session

# One turn of a client: how many jobs it moved.
Step = Callable[[], Awaitable[int]]

_WARM_UP = 2


class RanDry(Exception):
    """No job is left to move: the clock stops here."""


class Figure(ABC):
    """A rate that is measured. ``key`` names it, and is unique; ``guess`` is what to expect of it at first, in jobs/s."""

    key: str
    guess: float = 3_000

    @abstractmethod
    async def rate(self, seconds: float, guess: float) -> float:
        """Jobs/s of one run. ``guess`` is the rate expected, from which the number of jobs to prepare follows."""


class Work(Figure):
    """``number`` clients whose steps move at most ``per_step`` jobs each."""

    def __init__(self, name: str, clients: Clients, driver: str, number: int, per_step: int) -> None:
        self.key = f"{name}, {number} x {per_step}, {driver}"
        self.guess = 40_000 if per_step >= 100 else 3_000
        self.per_step = per_step
        self._clients = clients
        self._driver = driver
        self._number = number

    async def rate(self, seconds: float, guess: float) -> float:
        steps = await self.prepare(int(guess * seconds * 1.6) + 100 * self.per_step)
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

    async def prepare(self, depth: int) -> list[Step]:
        """Start from clean tables, with ``depth`` jobs where jobs are needed; returns a step for each client."""
        sessions = await self._clients.get(self._driver, self._number)
        await self.fill(sessions[0], depth)
        return [self.step(session) for session in sessions]

    @abstractmethod
    async def fill(self, session: Session, depth: int) -> None:
        """Make the tables as every run of this work finds them."""

    @abstractmethod
    def step(self, session: Session) -> Step:
        """The step that one session repeats."""

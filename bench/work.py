"""What a figure is measured by: some clients of one driver, each repeating one step."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from bench.drivers import Clients, Session

# One turn of a client: how many jobs it moved.
Step = Callable[[], Awaitable[int]]


class RanDry(Exception):
    """No job is left to move: the clock stops here."""


class Work(ABC):
    """``number`` clients whose steps move at most ``per_step`` jobs each. ``key`` names the figure, and is unique."""

    def __init__(self, name: str, clients: Clients, driver: str, number: int, per_step: int) -> None:
        self.key = f"{name}, {number} x {per_step}, {driver}"
        self.per_step = per_step
        self._clients = clients
        self._driver = driver
        self._number = number

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

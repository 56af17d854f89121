"""The floors: what a queue could cost that keeps nothing. No leases, retries, history, tenants or answers.

Its rows are claimed with ``for update skip locked`` and ``id = any(array(…))``, and deleted when done: two transactions
a batch. Its jobs are added by one insert each, or by COPY.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from bench.drivers import DRIVERS, Session
from bench.rounds import RanDry, Step

TABLE = """
    create table bare (
        id bigint generated always as identity primary key, payload jsonb not null, taken boolean not null default false
    ) with (autovacuum_enabled = false)
"""
_CLAIM = """
    update bare set taken = true
    where id = any (array(select id from bare where not taken order by id limit $1 for update skip locked))
    returning id, payload
"""
_DONE = "delete from bare where id = any ($1::bigint[])"
_INSERT = "insert into bare (payload) values ($1::text::jsonb) returning id"
_FILL = "insert into bare (payload) select jsonb_build_object('n', n) from generate_series(1, $1::integer) n"

BULK = 10_000


class Floor(ABC):
    """``clients`` connections of one driver to the bare table."""

    name: ClassVar[str]

    def __init__(self, dsn: str, driver: str, clients: int, per_step: int) -> None:
        self.key = f"floor: {self.name}, {clients} x {per_step}, {driver}"
        self.per_step = per_step
        self._dsn = dsn
        self._driver = driver
        self._clients = clients
        self._sessions: list[Session] = []

    async def open(self, depth: int) -> list[Step]:
        self._sessions = [await DRIVERS[self._driver](self._dsn) for _ in range(self._clients)]
        await self.fill(self._sessions[0], depth)
        return [self.step(session) for session in self._sessions]

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()

    async def fill(self, session: Session, depth: int) -> None:  # noqa: ARG002  # inserts need no rows beforehand
        await session.run("truncate bare restart identity")
        await session.run("checkpoint")

    @abstractmethod
    def step(self, session: Session) -> Step:
        """The step that one session repeats."""


class FloorClaims(Floor):
    """Rows claimed in one transaction and deleted in the next."""

    name = "claim and delete"

    async def fill(self, session: Session, depth: int) -> None:
        await super().fill(session, depth)
        await session.run(_FILL, depth)
        await session.run("analyze bare")

    def step(self, session: Session) -> Step:
        async def step() -> int:
            ids = await session.column(_CLAIM, self.per_step)
            if not ids:
                raise RanDry
            await session.run(_DONE, ids)
            return len(ids)

        return step


class FloorInserts(Floor):
    """One row a transaction, the payload encoded by the client."""

    name = "insert"

    def __init__(self, dsn: str, driver: str, clients: int) -> None:
        super().__init__(dsn, driver, clients, 1)

    def step(self, session: Session) -> Step:
        async def step() -> int:
            await session.value(_INSERT, '{"n": 1}')
            return 1

        return step


class FloorCopy(Floor):
    """10,000 rows a COPY, formatted by the client."""

    name = "COPY"

    def __init__(self, dsn: str, driver: str) -> None:
        super().__init__(dsn, driver, 1, BULK)

    def step(self, session: Session) -> Step:
        async def step() -> int:
            await session.copy("bare", ["payload"], [(f'{{"n": {n}}}',) for n in range(BULK)])
            return BULK

        return step

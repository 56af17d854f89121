"""The floors: what a queue could cost that keeps nothing. No leases, retries, history, tenants or answers.

Its rows are claimed with ``for update skip locked`` and ``id = any(array(…))``, and deleted when done: two transactions
a batch. Its jobs are added by one insert each, or by COPY.
"""

from bench.drivers import Clients, Session
from bench.work import RanDry, Step, Work

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
FILL = "insert into bare (payload) select jsonb_build_object('n', n) from generate_series(1, $1::integer) n"

BULK = 10_000


async def empty_table(session: Session) -> None:
    await session.run("truncate bare restart identity")


class FloorClaims(Work):
    """Rows claimed in one transaction and deleted in the next."""

    def __init__(self, clients: Clients, driver: str, number: int, batch: int) -> None:
        super().__init__("floor: claim and delete", clients, driver, number, batch)

    async def fill(self, session: Session, depth: int) -> None:
        await empty_table(session)
        await session.run(FILL, depth)
        await session.run("analyze bare")

    def step(self, session: Session) -> Step:
        async def step() -> int:
            ids = await session.column(_CLAIM, self.per_step)
            if not ids:
                raise RanDry
            await session.run(_DONE, ids)
            return len(ids)

        return step


class FloorInserts(Work):
    """One row a transaction, the payload encoded by the client."""

    def __init__(self, clients: Clients, driver: str, number: int) -> None:
        super().__init__("floor: insert", clients, driver, number, 1)

    async def fill(self, session: Session, depth: int) -> None:  # noqa: ARG002  # needs no rows beforehand
        await empty_table(session)

    def step(self, session: Session) -> Step:
        async def step() -> int:
            await session.value(_INSERT, '{"n": 1}')
            return 1

        return step


class FloorCopy(Work):
    """10,000 rows a COPY, formatted by the client."""

    def __init__(self, clients: Clients, driver: str) -> None:
        super().__init__("floor: COPY", clients, driver, 1, BULK)

    async def fill(self, session: Session, depth: int) -> None:  # noqa: ARG002  # needs no rows beforehand
        await empty_table(session)

    def step(self, session: Session) -> Step:
        async def step() -> int:
            await session.copy("bare", ["payload"], [(f'{{"n": {n}}}',) for n in range(BULK)])
            return BULK

        return step

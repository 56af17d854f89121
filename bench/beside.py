"""What jobs that may not start yet cost those that may: the same drain with and without many of them beside it."""

from collections.abc import Sequence

from bench.drivers import Clients, Session
from bench.fleet import FleetRate, Member
from bench.member import Duty
from bench.ours import FILL, QUEUE, empty_tables

_FUTURE = """
    insert into sluicegate.job (queue_id, scope_id, state, run_at, payload, created_at)
    select q.id, q.scope_id, 'scheduled', now() + interval '1 day' + n * interval '1 ms', jsonb_build_object('n', n), now()
    from sluicegate.queue q cross join generate_series(1, $1::integer) n
    where q.name = 'bench'
"""


class Drain(FleetRate):
    """Jobs of a queue drained to the last, what is scheduled for later staying where it is."""

    def __init__(self, key: str, session: Session, members: Sequence[Member]) -> None:
        super().__init__(key, members, Duty(queue=QUEUE, drain=True), self._add)
        self._session = session

    async def _add(self, depth: int) -> None:
        # What earlier rounds left behind is cleared away on both sides, as autovacuum would have done.
        await self._session.run("vacuum analyze sluicegate.job")
        await self._session.run(FILL, depth)


async def schedule(clients: Clients, number: int) -> Session:
    """A queue with nothing but ``number`` jobs for tomorrow."""
    (session,) = await clients.get("psycopg", 1)
    await empty_tables(session, 0)
    if number:
        await session.run(_FUTURE, number)
    return session

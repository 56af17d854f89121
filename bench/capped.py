"""The capped floor: a bare table of which no more than so many rows may be taken at once, over all its clients.

One gate row is locked; the rows that run are counted in a later statement; up to the room left, at most 100, are claimed;
all in the transaction that also deletes what was done. Once as the statements a client would send, and once as one call of
a function, without their round trips.
"""

import asyncio
from collections.abc import Awaitable, Callable

from bench.drivers import Clients, Session
from bench.floor import FILL, empty_table
from bench.work import RanDry, Step, Work

TABLE = """
    create table gate (id integer primary key, most integer not null);
    insert into gate values (1, 0);
    create index bare_taken on bare (id) where taken;
    create function capped(p_done bigint[]) returns bigint[] language plpgsql as $$
    declare
        v_room integer;
        v_ids bigint[];
    begin
        select most into v_room from gate where id = 1 for update;
        if p_done <> '{}' then
            delete from bare where id = any (p_done);
        end if;
        v_room := v_room - (select count(*) from bare where taken);
        if v_room > 0 then
            with claimed as (
                update bare set taken = true
                where id = any (array(select id from bare where not taken order by id limit least(v_room, 100) for update skip locked))
                returning id
            )
            select array_agg(id) into v_ids from claimed;
        end if;
        return coalesce(v_ids, '{}');
    end
    $$;
"""
_GATE = "select most from gate where id = 1 for update"
_DONE = "delete from bare where id = any ($1::bigint[])"
_RUNNING = "select count(*) from bare where taken"
_CLAIM = """
    update bare set taken = true
    where id = any (array(select id from bare where not taken order by id limit $1 for update skip locked))
    returning id
"""
_CALL = "select capped($1::bigint[])"
_LEFT = "select exists (select from bare where not taken)"
_BATCH = 100
# Whoever finds no room looks again so many seconds later.
_WAIT = 0.005

Turn = Callable[[Session, list[int]], Awaitable[list[int]]]


async def statements(session: Session, done: list[int]) -> list[int]:
    """One transaction, statement by statement."""
    await session.run("begin")
    most = await session.value(_GATE)
    if done:
        await session.run(_DONE, done)
    room = most - await session.value(_RUNNING)
    ids = await session.column(_CLAIM, min(room, _BATCH)) if room > 0 else []
    await session.run("commit")
    return ids


async def one_call(session: Session, done: list[int]) -> list[int]:
    """The same inside the server."""
    ids: list[int] = await session.value(_CALL, done)
    return ids


class CappedFloor(Work):
    """Rows taken and deleted under the gate."""

    def __init__(self, name: str, clients: Clients, driver: str, number: int, most: int, turn: Turn) -> None:
        super().__init__(name, clients, driver, number, most)
        self._most = most
        self._turn = turn

    async def fill(self, session: Session, depth: int) -> None:
        await empty_table(session)
        await session.run("update gate set most = $1", self._most)
        await session.run(FILL, depth)
        await session.run("vacuum analyze bare")

    def step(self, session: Session) -> Step:
        done: list[int] = []

        async def step() -> int:
            nonlocal done
            moved, done = len(done), await self._turn(session, done)
            if not done and not moved:
                if not await session.value(_LEFT):
                    raise RanDry
                await asyncio.sleep(_WAIT)
            return moved

        return step

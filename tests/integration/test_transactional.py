"""Enqueueing on connections of other libraries: in their transaction, gone with its rollback, refused in our words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg.types.string import StrDumper

from sluicegate import InvalidArgument, NewJob, NotFound
from sluicegate.transactional import enqueue_in
from tests.conftest import Connection

LEVELS = ("read committed", "repeatable read")


class Kept:
    """One open transaction of some library: ``run`` enqueues in it, ``end`` commits or rolls back."""

    def __init__(
        self, run: Callable[..., Awaitable[Any]], end: Callable[[bool], Awaitable[None]], connection: Any = None
    ) -> None:
        self.run = run
        self.end = end
        self.connection = connection


@asynccontextmanager
async def with_psycopg(dsn: str, level: str) -> AsyncIterator[Kept]:
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = getattr(psycopg.IsolationLevel, level.upper().replace(" ", "_"))

        async def run(*jobs: Any, **options: Any) -> Any:
            return enqueue_in(connection, jobs, **options)

        async def end(keep: bool) -> None:
            connection.commit() if keep else connection.rollback()

        yield Kept(run, end, connection)


@asynccontextmanager
async def with_psycopg_async(dsn: str, level: str) -> AsyncIterator[Kept]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.set_isolation_level(getattr(psycopg.IsolationLevel, level.upper().replace(" ", "_")))

        async def run(*jobs: Any, **options: Any) -> Any:
            made = enqueue_in(connection, jobs, **options)
            assert isinstance(made, Awaitable)
            return await made

        async def end(keep: bool) -> None:
            await (connection.commit() if keep else connection.rollback())

        yield Kept(run, end)


@asynccontextmanager
async def with_asyncpg(dsn: str, level: str) -> AsyncIterator[Kept]:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    transaction: Any = None

    async def begin() -> None:
        nonlocal transaction
        transaction = connection.transaction(isolation=level.replace(" ", "_"))
        await transaction.start()

    async def run(*jobs: Any, **options: Any) -> Any:
        made = enqueue_in(connection, jobs, **options)
        assert isinstance(made, Awaitable)
        return await made

    async def end(keep: bool) -> None:
        await (transaction.commit() if keep else transaction.rollback())
        await begin()

    await begin()
    yield Kept(run, end, connection)
    await connection.close()


@asynccontextmanager
async def with_sqlalchemy(dsn: str, level: str, *, core: bool = False) -> AsyncIterator[Kept]:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    engine = create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"), isolation_level=level.upper())
    with engine.connect() if core else Session(engine) as session:

        async def run(*jobs: Any, **options: Any) -> Any:
            return enqueue_in(session, jobs, **options)

        async def end(keep: bool) -> None:
            session.commit() if keep else session.rollback()

        yield Kept(run, end)
    engine.dispose()


@asynccontextmanager
async def with_sqlalchemy_async(
    dsn: str, level: str, *, driver: str = "asyncpg", core: bool = False
) -> AsyncIterator[Kept]:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    engine = create_async_engine(dsn.replace("postgresql://", f"postgresql+{driver}://"), isolation_level=level.upper())
    async with engine.connect() if core else AsyncSession(engine) as session:

        async def run(*jobs: Any, **options: Any) -> Any:
            made = enqueue_in(session, jobs, **options)
            assert isinstance(made, Awaitable)
            return await made

        async def end(keep: bool) -> None:
            await (session.commit() if keep else session.rollback())

        yield Kept(run, end)
    await engine.dispose()


def django_connection(dsn: str, level: str) -> Any:
    import django
    from django.conf import settings
    from django.db.backends.postgresql.base import DatabaseWrapper

    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    return DatabaseWrapper(
        {
            "ENGINE": "django.db.backends.postgresql", "NAME": parts["dbname"], "USER": parts["user"],
            "PASSWORD": parts["password"], "HOST": parts["host"], "PORT": "", "TIME_ZONE": None, "AUTOCOMMIT": True,
            "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False,
            "OPTIONS": {"isolation_level": getattr(psycopg.IsolationLevel, level.upper().replace(" ", "_"))},
        }
    )  # fmt: skip


@asynccontextmanager
async def with_django(dsn: str, level: str) -> AsyncIterator[Kept]:
    from asgiref.sync import sync_to_async

    wrapper = django_connection(dsn, level)

    async def run(*jobs: Any, **options: Any) -> Any:
        return await sync_to_async(lambda: enqueue_in(wrapper, jobs, **options))()

    async def end(keep: bool) -> None:
        await sync_to_async(wrapper.commit if keep else wrapper.rollback)()

    wrapper.inc_thread_sharing()
    await sync_to_async(lambda: wrapper.set_autocommit(False))()
    yield Kept(run, end)
    await sync_to_async(wrapper.close)()


@asynccontextmanager
async def with_json_by_asyncpg(dsn: str, level: str) -> AsyncIterator[Kept]:
    """As asyncpg's own manual has it, for all that is JSON."""
    async with with_asyncpg(dsn, level) as kept:
        for kind in ("json", "jsonb"):
            await kept.connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        yield kept


@asynccontextmanager
async def with_json_by_psycopg(dsn: str, level: str) -> AsyncIterator[Kept]:
    """Where every text is sent as text, and every answer is read by somebody else's loader."""
    async with with_psycopg(dsn, level) as kept:
        set_json_dumps(lambda value: json.dumps([value]), kept.connection)
        set_json_loads(lambda text: [text], kept.connection)
        kept.connection.adapters.register_dumper(str, StrDumper)
        yield kept


LIBRARIES = {
    "psycopg": with_psycopg,
    "psycopg async": with_psycopg_async,
    "asyncpg": with_asyncpg,
    "asyncpg with codecs": with_json_by_asyncpg,
    "psycopg with dumpers": with_json_by_psycopg,
    "SQLAlchemy": with_sqlalchemy,
    "SQLAlchemy core": partial(with_sqlalchemy, core=True),
    "SQLAlchemy async": with_sqlalchemy_async,
    "SQLAlchemy async core": partial(with_sqlalchemy_async, core=True),
    "SQLAlchemy async on psycopg": partial(with_sqlalchemy_async, driver="psycopg"),
    "Django": with_django,
}


async def pending(db: Connection) -> list[Any]:
    cursor = await db.execute("select payload from sluicegate.job order by id")
    return [row[0] for row in await cursor.fetchall()]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("library", LIBRARIES)
async def test_jobs_come_and_go_with_the_caller_s_transaction(
    dsn: str, db: Connection, library: str, level: str
) -> None:
    async with LIBRARIES[library](dsn, level) as kept:
        made = await kept.run(NewJob("mail", {"order": 1}), NewJob("mail", {"o": "ü"}, tags=("a", "b")))
        assert [job.created for job in made.jobs] == [True, True]
        assert await pending(db) == []
        await kept.end(False)
        assert await pending(db) == []
        await kept.run(NewJob("mail", {"order": 2}), request_id="once")
        await kept.end(True)
        assert await pending(db) == [{"order": 2}]
        await kept.run(NewJob("mail", {"order": 2}), request_id="once")
        await kept.end(True)
        assert await pending(db) == [{"order": 2}], "the same request id adds nothing"


@pytest.mark.parametrize("library", LIBRARIES)
async def test_what_is_refused_is_refused_in_our_words(dsn: str, db: Connection, library: str) -> None:
    async with LIBRARIES[library](dsn, "read committed") as kept:
        with pytest.raises(InvalidArgument) as refused:
            await kept.run(NewJob("no space", 1))
        assert refused.value.field == "jobs[0].queue"
        with pytest.raises(NotFound):
            await kept.run(NewJob("mail", 1), scope="team:nobody")
        await kept.end(False)
        assert await pending(db) == []


def test_an_atomic_block_of_django_takes_its_jobs_with_it(dsn: str) -> None:
    wrapper = django_connection(dsn, "read committed")
    from django.db import connection, connections, transaction

    def broken() -> None:
        with transaction.atomic():
            enqueue_in(connection, NewJob("mail", 1))
            raise ZeroDivisionError

    connections["default"] = wrapper
    try:
        with pytest.raises(ZeroDivisionError):
            broken()
        with transaction.atomic():
            (job,) = enqueue_in(connection, NewJob("mail", 2)).jobs
    finally:
        wrapper.close()
        del connections["default"]
    with psycopg.connect(dsn) as looking:
        assert looking.execute("select id, payload from sluicegate.job").fetchall() == [(job.id, 2)]


async def test_connections_of_pools_are_known(dsn: str, db: Connection) -> None:
    import asyncpg
    from psycopg_pool import ConnectionPool

    with ConnectionPool(dsn, min_size=1, max_size=1) as pool, pool.connection() as connection:
        enqueue_in(connection, NewJob("mail", 1))
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as others, others.acquire() as other:
        await enqueue_in(other, [NewJob("mail", 2), NewJob("mail", 3)])
    assert await pending(db) == [1, 2, 3]


async def test_a_connection_may_make_cursors_of_any_kind(dsn: str, db: Connection) -> None:
    for number, kind in enumerate((psycopg.ClientCursor, psycopg.RawCursor)):
        with psycopg.connect(dsn, cursor_factory=kind) as connection:
            enqueue_in(connection, NewJob("mail", number))
    for number, several in enumerate((psycopg.AsyncClientCursor, psycopg.AsyncRawCursor), 2):
        async with await psycopg.AsyncConnection.connect(dsn, cursor_factory=several) as other:
            await enqueue_in(other, NewJob("mail", number))
    assert await pending(db) == [0, 1, 2, 3]


@pytest.mark.parametrize("level", LEVELS)
async def test_what_another_transaction_has_written_meanwhile_is_a_retry_of_the_whole_under_repeatable_read(
    dsn: str, db: Connection, level: str
) -> None:
    async with with_psycopg_async(dsn, level) as first, with_psycopg_async(dsn, level) as second:
        await first.run(NewJob("mail", 1, dedup_key="once"))
        await first.end(True)
        await second.run(NewJob("other", 2))
        await first.run(NewJob("third", 3, dedup_key="twice"))
        await first.end(True)
        if level == "read committed":
            (again,) = (await second.run(NewJob("mail", 4, dedup_key="twice"))).jobs
            assert again.created is False
        else:
            with pytest.raises(psycopg.errors.SerializationFailure):
                await second.run(NewJob("mail", 4, dedup_key="twice"))
            await second.end(False)
            (again,) = (await second.run(NewJob("mail", 4, dedup_key="twice"))).jobs
            assert again.created is False


def test_what_is_no_connection_is_refused() -> None:
    with pytest.raises(InvalidArgument) as refused:
        enqueue_in(object(), NewJob("mail"))
    assert refused.value.field == "connection"


@pytest.mark.parametrize(("jobs", "options", "field"), [(None, {}, "jobs"), (NewJob("mail"), {"wake": "no"}, "wake")])
def test_what_is_no_job_and_no_flag_is_refused(jobs: Any, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        enqueue_in(object(), jobs, **options)
    assert refused.value.field == field

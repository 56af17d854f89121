"""What a client says when the database is not as it should be: our own errors, with what to do next."""

import secrets
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from sluicegate import Client, Forbidden, NewJob, SchemaMismatch, Unavailable, WrongIsolation
from tests.support.servers import Server

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


async def set_for_database(db: Connection, setting: str, value: str) -> None:
    command = sql.SQL("alter database {} set {} to {}")
    name = db.info.dbname
    await db.execute(command.format(sql.Identifier(name), sql.Identifier(setting), sql.Literal(value)))


@pytest.fixture
async def worker_dsn(dsn: str, server: Server, db: Connection) -> AsyncIterator[str]:
    """The test's database as a role that is a worker and nothing else."""
    role = f"t_worker_{secrets.token_hex(4)}"
    await db.execute(
        sql.SQL("create role {} login password 'w' in role sluicegate_worker").format(sql.Identifier(role))
    )
    yield server.dsn(urlsplit(dsn).path.lstrip("/"), user=role, password="w")
    await db.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


async def test_a_worker_role_lives_the_life_of_a_job_and_may_not_shorten_what_is_kept(worker_dsn: str) -> None:
    async with Client(worker_dsn) as client:
        await client.enqueue_many([NewJob("q"), NewJob("q")])
        one, two = (await client.claim("q", n=2)).claims
        await client.heartbeat(one)
        assert (await client.complete(one)).state == "done"
        assert (await client.release(two)).state == "pending"
        assert len((await client.list_jobs()).jobs) == 2
        assert (await client.prune()).jobs == 0
        with pytest.raises(Forbidden, match="administrator") as caught:
            await client.prune(job_days=1)
    assert caught.value.code == "forbidden"
    assert caught.value.next_step


async def test_a_function_that_is_not_there_means_that_the_schema_must_be_migrated(
    client: Client, db: Connection
) -> None:
    await db.execute("drop function sluicegate.queue_stats")
    with pytest.raises(SchemaMismatch, match="sluicegate migrate"):
        await client.queue_stats()
    await db.execute("drop schema sluicegate cascade")
    with pytest.raises(SchemaMismatch, match="sluicegate migrate"):
        await client.claim("q")


async def test_another_default_isolation_is_refused_with_the_setting_to_change(dsn: str, db: Connection) -> None:
    await set_for_database(db, "default_transaction_isolation", "repeatable read")
    async with Client(dsn) as client:
        await client.enqueue("q")
        with pytest.raises(WrongIsolation, match="alter database") as caught:
            await client.claim("q")
    assert "READ COMMITTED" in caught.value.message


async def test_a_server_that_takes_no_writes_points_to_the_primary(dsn: str, db: Connection) -> None:
    await set_for_database(db, "default_transaction_read_only", "on")
    async with Client(dsn) as client:
        with pytest.raises(Unavailable, match="target_session_attrs=read-write") as caught:
            await client.enqueue("q")
    assert not caught.value.retriable


async def test_a_statement_that_times_out_may_be_tried_again(dsn: str, db: Connection) -> None:
    async with Client(dsn) as client:
        await client.enqueue("q")
    await set_for_database(db, "statement_timeout", "50ms")
    async with Client(dsn) as client, db.transaction():
        await db.execute("lock table sluicegate.job in access exclusive mode")
        with pytest.raises(Unavailable, match="could not do this now") as caught:
            await client.list_jobs()
    assert caught.value.retriable
    assert not caught.value.outcome_unknown


async def test_the_scope_comes_from_the_settings_unless_it_is_given(
    dsn: str, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await db.execute(
        "insert into sluicegate.endpoint (owner_id, slug) select id, 'ci' from sluicegate.owner where slug = 'local'"
    )
    monkeypatch.setenv("SLUICEGATE_SCOPE", "endpoint:ci")
    async with Client(dsn) as client, Client(dsn, scope="endpoint:default") as other:
        assert (client.scope, other.scope) == ("endpoint:ci", "endpoint:default")
        await client.enqueue("q")
        assert (await other.claim("q")).empty
        assert len((await client.claim("q")).claims) == 1


async def test_the_dsn_comes_from_the_environment_when_none_is_given(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_DSN", dsn)
    async with Client() as client:
        assert (await client.enqueue("q")).created

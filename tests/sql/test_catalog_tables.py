"""Every table, column and role, read from the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg import sql

from sluicegate.sql.grants import ROLES
from sluicegate.sql.migrate import migrate
from sluicegate.sql.source import load_source
from tests.sql.background import connect

TABLES = """
select c.relname from pg_class c where c.relnamespace = 'sluicegate'::regnamespace and c.relkind in ('r', 'p') order by 1
"""
COLUMNS = """
select c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
from pg_class c join pg_attribute a on a.attrelid = c.oid
where c.relnamespace = 'sluicegate'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
"""
SECRET = {
    ("endpoint", "token_sha256"),
    ("job", "lease_token_hash"),
    ("attempt_end", "lease_token_hash"),
    ("late_call", "token_hash"),
}
# Not ids of rows: a client's own word for a request, and an operating system's number of a process.
NOT_IDS = {("request", "request_id"), ("migration", "backend_pid")}

Conn = psycopg.Connection[Any]


@pytest.fixture(params=ROLES)
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def owner(dsn: str) -> Iterator[Conn]:
    with connect(dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def member(dsn: str, role: str) -> Iterator[Conn]:
    """A session that acts as ``role``."""
    with connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        yield conn


def tables(owner: Conn) -> list[str]:
    found = [row[0] for row in owner.execute(TABLES)]
    assert {"job", "attempt", "migration", "endpoint"} <= set(found)
    return found


def columns(owner: Conn, table: str) -> list[str]:
    return [row[1] for row in owner.execute(COLUMNS) if row[0] == table]


def refused(conn: Conn, statement: sql.Composed | str) -> bool:
    """Whether the database itself refuses ``statement`` to this role; whatever else it does is undone."""
    text = statement.encode() if isinstance(statement, str) else statement
    try:
        with conn.transaction(force_rollback=True):
            conn.execute(text)
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False


def test_ids_are_bigint(owner: Conn) -> None:
    wrong = [
        (table, column, kind)
        for table, column, kind in owner.execute(COLUMNS)
        if re.search(r"(^|_)(id|pid)$", column) and (table, column) not in NOT_IDS and kind != "bigint"
    ]
    assert wrong == []


def test_instants_carry_their_zone(owner: Conn) -> None:
    assert [row for row in owner.execute(COLUMNS) if row[2].startswith("timestamp without")] == []


def test_no_role_writes_any_table(owner: Conn, member: Conn) -> None:
    open_ = []
    for name in tables(owner):
        table = sql.Identifier("sluicegate", name)
        column = sql.Identifier(columns(owner, name)[-1])
        attempts = {
            "insert": sql.SQL("insert into {} default values").format(table),
            "update": sql.SQL("update {t} set {c} = {c}").format(t=table, c=column),
            "delete": sql.SQL("delete from {}").format(table),
            "truncate": sql.SQL("truncate {}").format(table),
            "lock": sql.SQL("lock table {} in access exclusive mode").format(table),
            "trigger": sql.SQL("create trigger t before insert on {} execute function sluicegate.clock()").format(
                table
            ),
            "alter": sql.SQL("alter table {} add column mine int").format(table),
            "drop": sql.SQL("drop table {}").format(table),
            "row lock": sql.SQL("select 1 from {} for update").format(table),
        }
        open_ += [(name, verb) for verb, attempt in attempts.items() if not refused(member, attempt)]
    assert open_ == []


@pytest.mark.both_versions
def test_readers_read_every_table_but_no_hash_of_a_secret(owner: Conn, member: Conn, role: str) -> None:
    reads = role in {"sluicegate_reader", "sluicegate_admin"}
    for name in tables(owner):
        for column in columns(owner, name):
            query = sql.SQL("select {} from {}").format(sql.Identifier(column), sql.Identifier("sluicegate", name))
            allowed = name in {"migration", "function_version"} or (reads and "token" not in column)
            assert refused(member, query) is not allowed, f"{role} {name}.{column}"


def test_the_columns_that_hold_hashes_of_secrets_are_the_known_ones(owner: Conn) -> None:
    assert {(table, column) for table, column, _ in owner.execute(COLUMNS) if "token" in column} == SECRET


def test_a_later_column_of_that_kind_is_closed_at_once(owner: Conn, dsn: str) -> None:
    owner.execute("alter table sluicegate.owner add column recovery_secret bytea")
    migrate(owner)
    with connect(dsn, autocommit=True) as reader:
        reader.execute("set role sluicegate_reader")
        assert refused(reader, "select recovery_secret from sluicegate.owner")
        assert not refused(reader, "select slug from sluicegate.owner")


def test_no_role_makes_or_changes_anything_in_the_schema(owner: Conn, member: Conn) -> None:
    attempts = [
        "create table sluicegate.mine (id bigint)",
        "create function sluicegate.mine() returns int language sql as 'select 1'",
        "create or replace function sluicegate.clock() returns timestamptz language sql as 'select now()'",
        "alter function sluicegate.clock() owner to current_user",
        "alter function sluicegate.clock() immutable",
        "drop function sluicegate.clock()",
        "alter schema sluicegate rename to mine",
        "create type sluicegate.mine as (a int)",
        "select nextval('sluicegate.principal_id')",
    ]
    assert [attempt for attempt in attempts if not refused(member, attempt)] == []
    for file in load_source().functions:
        assert refused(member, file.text.strip().rstrip(";")), file.name


def test_no_role_passes_on_what_it_was_granted(owner: Conn, member: Conn) -> None:
    """PostgreSQL only warns of a grant without grant option; what counts is that nothing was granted."""
    member.execute("grant usage on schema sluicegate to public")
    for (name,) in owner.execute(
        "select oid::regprocedure::text from pg_proc where pronamespace = 'sluicegate'::regnamespace"
    ):
        with suppress(psycopg.errors.InsufficientPrivilege):
            member.execute(f"grant execute on function {name} to public")
    row = owner.execute("""
        select has_schema_privilege('public', 'sluicegate', 'usage'), count(*)
        from pg_proc p
        where p.pronamespace = 'sluicegate'::regnamespace and has_function_privilege('public', p.oid, 'execute')
    """).fetchone()
    assert row == (False, 0)


def test_each_role_executes_what_is_granted_and_nothing_else(owner: Conn, member: Conn, role: str) -> None:
    signatures = owner.execute(
        "select p.proname, p.oid from pg_proc p where p.pronamespace = 'sluicegate'::regnamespace"
    ).fetchall()
    grants = {file.name: {f"sluicegate_{grantee}" for grantee in file.grants} for file in load_source().functions}
    for name, oid in signatures:
        row = member.execute("select has_function_privilege(%s::oid, 'execute')", (oid,)).fetchone()
        assert row == (role in grants[name],), name


def test_a_helper_is_refused_when_called(member: Conn) -> None:
    assert refused(member, "select sluicegate.scope_id('endpoint:default')")
    assert refused(member, "select sluicegate.refuse('SG001', 'a', 'b')")


def test_a_worker_works_through_the_functions_alone(dsn: str) -> None:
    with connect(dsn, autocommit=True) as conn:
        conn.execute("set role sluicegate_worker")
        conn.execute("select sluicegate.enqueue('a', '1')")
        row = conn.execute('select sluicegate.claim(\'[{"queues": ["a"]}]\')').fetchone()
        assert row is not None
        claim = row[0]["responses"][0]["claims"][0]
        done = conn.execute("select sluicegate.complete(%s, %s)", (claim["job"]["id"], claim["lease_token"])).fetchone()
        assert done is not None
        assert done[0]["status"] == "ok"


def test_a_producer_enqueues_and_cannot_claim(dsn: str) -> None:
    with connect(dsn, autocommit=True) as conn:
        conn.execute("set role sluicegate_producer")
        assert not refused(conn, "select sluicegate.enqueue('a', '1')")
        assert refused(conn, 'select sluicegate.claim(\'[{"queues": ["a"]}]\')')


def test_a_search_path_of_the_callers_changes_nothing(dsn: str) -> None:
    with connect(dsn, autocommit=True) as conn:
        conn.execute("create schema evil; grant usage, create on schema evil to sluicegate_worker")
        conn.execute("set role sluicegate_worker")
        conn.execute(
            "create function evil.clock() returns timestamptz language sql as $$ select '2001-01-01Z'::timestamptz $$"
        )
        conn.execute(
            "create function evil.now() returns timestamptz language sql as $$ select '2001-01-01Z'::timestamptz $$"
        )
        conn.execute("create temporary table job (id bigint)")
        conn.execute("set search_path = pg_temp, evil, pg_catalog")
        row = conn.execute("select sluicegate.enqueue('a', '1')").fetchone()
        assert row is not None
        assert row[0]["state"] == "pending"
        conn.execute("reset role")
        shown = conn.execute("select count(*) from sluicegate.job where created_at > '2020-01-01'").fetchone()
        assert shown == (1,)

"""What ``migrate --sql`` prints does exactly what ``migrate`` does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from sluicegate.errors import InvalidArgument
from sluicegate.sql.lexer import statements
from sluicegate.sql.migrate import migrate, schema_state
from sluicegate.sql.script import migration_script
from sluicegate.sql.source import load_source
from sluicegate.sql.texts import LOCK_KEY
from tests.sql.background import connect
from tests.sql.small import Small, ask, run, versions
from tests.support.servers import Server

INDEX = "-- nontransactional\ncreate index concurrently if not exists thing_note on sluicegate.thing (note);\n"

# Everything that distinguishes two schemas, without oids and times.
SHAPE = """
select c.relname, c.relkind::text, c.reloptions, c.relacl::text, pg_get_userbyid(c.relowner)
from pg_class c where c.relnamespace = 'sluicegate'::regnamespace order by 1;
select c.relname, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
    a.attacl::text, pg_get_expr(d.adbin, d.adrelid)
from pg_class c join pg_attribute a on a.attrelid = c.oid
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where c.relnamespace = 'sluicegate'::regnamespace and a.attnum > 0 order by 1, 3;
select pg_get_functiondef(p.oid), p.proacl::text
from pg_proc p where p.pronamespace = 'sluicegate'::regnamespace order by 1;
select conrelid::regclass::text, pg_get_constraintdef(oid)
from pg_constraint where connamespace = 'sluicegate'::regnamespace order by 1, 2;
select indexdef from pg_indexes where schemaname = 'sluicegate' order by 1;
select nspacl::text from pg_namespace where nspname = 'sluicegate';
select version, name, sha256, phase, minimum, library, applied_at is null, backend_pid from sluicegate.migration order by 1;
select name, sha256, signature, identity_arguments, installed_signature, installed_sha256, library
from sluicegate.function_version order by 1;
"""

Psql = Callable[..., subprocess.CompletedProcess[str]]


def shape(dsn: str) -> list[list[tuple[Any, ...]]]:
    with connect(dsn, autocommit=True) as conn:
        return [conn.execute(query.encode()).fetchall() for query in statements(SHAPE)]


@pytest.fixture
def psql(server: Server, empty_dsn: str) -> Psql:
    """Run a script on the empty database as a DBA would."""

    def execute(text: str) -> subprocess.CompletedProcess[str]:
        command = [str(server.bin / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-", empty_dsn]
        return subprocess.run(command, input=text, text=True, capture_output=True, timeout=120, check=False)

    return execute


@pytest.mark.both_versions
def test_the_script_of_what_ships_makes_the_same_schema(psql: Psql, empty_dsn: str, dsn: str) -> None:
    done = psql(migration_script(load_source()))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert shape(empty_dsn) == shape(dsn)
    with connect(empty_dsn) as conn:
        assert schema_state(conn).state == "ok"
        conn.rollback()
        assert migrate(conn).changed is False


def test_it_starts_where_it_is_told(small: Small, psql: Psql, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    small.migration("0002_more", "create table sluicegate.more (id bigint);")
    small.migration("0003_index", INDEX)
    small.function("greet", "p_a integer default 2", body="select 'two'")
    small.function("later")
    text = migration_script(load_source(small.root), start=1)
    assert "0001_thing" not in text
    done = psql(text)
    assert (done.returncode, done.stderr) == (0, "")
    assert versions(empty_dsn) == [1, 2, 3]
    assert ask(empty_dsn, "select sluicegate.greet()") == "two"
    assert ask(empty_dsn, "select indisvalid from pg_index where indexrelid = 'sluicegate.thing_note'::regclass")
    assert small.migrate(empty_dsn).changed is False


def test_a_function_that_no_longer_ships_is_dropped(small: Small, psql: Psql, empty_dsn: str) -> None:
    path = small.function("other")
    small.migrate(empty_dsn)
    path.unlink()
    assert psql(migration_script(load_source(small.root), start=1)).returncode == 0
    assert ask(empty_dsn, "select to_regproc('sluicegate.other')") is None


def test_a_script_that_ends_early_leaves_functions_to_the_last_one(small: Small, psql: Psql, empty_dsn: str) -> None:
    small.migration("0002_more", "create table sluicegate.more (id bigint);")
    source = load_source(small.root)
    assert psql(migration_script(source, to=1)).returncode == 0
    assert versions(empty_dsn) == [1]
    assert ask(empty_dsn, "select to_regproc('sluicegate.greet')") is None
    assert psql(migration_script(source, start=1)).returncode == 0
    assert ask(empty_dsn, "select sluicegate.greet()") == "one"


@pytest.mark.parametrize("start", [0, 2])
def test_it_refuses_another_version_than_the_one_it_starts_from(
    small: Small, psql: Psql, empty_dsn: str, start: int
) -> None:
    small.migrate(empty_dsn)
    for number in (2, 3):
        small.migration(f"{number:04d}_step", f"create table sluicegate.step_{number} (id bigint);")
    done = psql(migration_script(load_source(small.root), start=start))
    assert done.returncode != 0
    assert f"The schema is at version 1, and this part of the script starts from version {start}" in done.stderr
    assert "sluicegate migrate --sql 1.." in done.stderr
    assert versions(empty_dsn) == [1]


def test_it_refuses_to_run_beside_a_migrator(small: Small, psql: Psql, empty_dsn: str) -> None:
    with connect(empty_dsn) as other:
        other.execute(f"select pg_advisory_xact_lock({LOCK_KEY})")
        done = psql(migration_script(load_source(small.root)))
    assert "Another migrator is at work" in done.stderr


def test_an_index_left_invalid_stops_it_with_what_to_do(small: Small, psql: Psql, empty_dsn: str) -> None:
    run_text = "insert into sluicegate.thing values (1, null, 'a'), (2, null, 'a')"
    small.migrate(empty_dsn)
    run(empty_dsn, run_text)
    small.migration("0002_index", INDEX.replace("create index", "create unique index"))
    text = migration_script(load_source(small.root), start=1)
    assert "could not create unique index" in psql(text).stderr
    run(empty_dsn, "delete from sluicegate.thing where id = 2")
    again = psql(text)
    assert "left invalid by a build that did not end" in again.stderr
    assert "drop index concurrently sluicegate.thing_note" in again.stderr
    run(empty_dsn, "drop index concurrently sluicegate.thing_note")
    assert psql(text).returncode == 0
    assert versions(empty_dsn) == [1, 2]


@pytest.mark.parametrize(("start", "to"), [(-1, None), (0, 9), (2, 1), (9, None)])
def test_a_range_that_does_not_ship_is_refused(small: Small, start: int, to: int | None) -> None:
    small.migration("0002_more", "create table sluicegate.more (id bigint);")
    with pytest.raises(InvalidArgument, match="this library ships 1 to 2") as refused:
        migration_script(load_source(small.root), start, to)
    assert refused.value.field == "range"


def test_the_script_needs_no_psql(small: Small, empty_dsn: str) -> None:
    """Plain SQL: any client that sends it statement by statement will do."""
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        for statement in statements(migration_script(load_source(small.root))):
            conn.execute(statement.encode())
    assert ask(empty_dsn, "select sluicegate.greet()") == "one"

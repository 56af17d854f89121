"""How a library and a schema of different ages stand to each other."""

from __future__ import annotations

import psycopg
import pytest

from sluicegate.errors import Forbidden, SchemaMismatch
from sluicegate.sql.manifest import load_manifest
from sluicegate.sql.source import load_source
from sluicegate.sql.state import SchemaState, schema_state
from tests.sql.small import Small, run

MORE = "create table sluicegate.more (id bigint);\n"


def state_of(small: Small, dsn: str) -> SchemaState:
    with psycopg.connect(dsn) as conn:
        return schema_state(conn, directory=small.root)


def test_a_database_without_schema_is_missing(small: Small, empty_dsn: str) -> None:
    state = state_of(small, empty_dsn)
    assert (state.state, state.usable, state.next_step) == ("missing", False, "Run: sluicegate migrate")
    with pytest.raises(SchemaMismatch, match=r"no Sluicegate schema\. Run: sluicegate migrate"):
        state.require()


def test_a_schema_that_lacks_a_migration_is_behind_and_may_still_be_used(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    small.migration("0002_more", MORE)
    state = state_of(small, empty_dsn)
    assert (state.state, state.usable, state.version, state.latest, state.pending) == (
        "behind",
        True,
        1,
        2,
        ("0002_more",),
    )
    state.require()


def test_a_schema_below_the_librarys_minimum_is_refused(
    small: Small, empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.migrate(empty_dsn)
    small.migration("0002_more", MORE)
    monkeypatch.setattr("sluicegate.sql.state.MINIMUM_SCHEMA", 2)
    with pytest.raises(SchemaMismatch, match=r"version 1 and this library brings 0002_more\. Run: sluicegate migrate"):
        state_of(small, empty_dsn).require()


def test_a_schema_without_a_function_of_the_library_is_refused(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    small.function("verb")
    with pytest.raises(SchemaMismatch, match="lacks these functions: verb"):
        state_of(small, empty_dsn).require()


def test_a_function_with_an_older_text_is_behind_and_named(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    small.function("greet", body="select 'two'")
    state = state_of(small, empty_dsn)
    assert (state.state, state.usable, state.stale_functions) == ("behind", True, ("greet",))
    assert "greet" in state.message


def test_a_newer_schema_is_tolerated_until_it_says_otherwise(small: Small, empty_dsn: str) -> None:
    newer = [
        small.migration("0002_expand", MORE),
        small.migration("0003_contract", "-- phase: post\n-- minimum: 2\nselect 1;\n"),
    ]
    small.migrate(empty_dsn, phase="pre")
    newer.pop().unlink()
    newer.pop().unlink()
    state = state_of(small, empty_dsn)
    assert (state.state, state.usable, state.version, state.latest) == ("ahead", True, 2, 1)
    report = small.migrate(empty_dsn)
    assert (report.changed, report.version) == (False, 2)
    assert report.note is not None
    assert "left alone" in report.note

    small.migration("0002_expand", MORE)
    small.migration("0003_contract", "-- phase: post\n-- minimum: 2\nselect 1;\n")
    small.migrate(empty_dsn)
    (small.root / "migrations" / "0003_contract.sql").unlink()
    assert (state_of(small, empty_dsn).state, state_of(small, empty_dsn).usable) == ("ahead", True)
    (small.root / "migrations" / "0002_expand.sql").unlink()
    state = state_of(small, empty_dsn)
    assert (state.state, state.usable) == ("ahead", False)
    with pytest.raises(SchemaMismatch, match=r"needs a library that knows version 2\. Upgrade this library"):
        small.migrate(empty_dsn)


def test_an_applied_file_that_the_library_lacks_in_the_middle_is_tampered(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    run(empty_dsn, "update sluicegate.migration set sha256 = 'x'")
    state = state_of(small, empty_dsn)
    assert (state.state, state.usable) == ("tampered", False)
    assert state.next_step is not None
    assert "original file" in state.next_step


def test_a_moved_clock_alone_refuses_nobody(dsn: str) -> None:
    run(dsn, "create or replace function sluicegate.clock() returns timestamptz language sql as 'select now()'")
    with psycopg.connect(dsn) as conn:
        state = schema_state(conn)
    assert (state.state, state.usable, state.clock_replaced, state.replaced_functions) == ("ok", True, True, ("clock",))


def test_what_a_start_compares_is_what_migrate_installs() -> None:
    source = load_source()
    assert load_manifest().migrations == source.manifest.migrations
    assert set(load_manifest().functions) == set(source.manifest.functions)


def test_looking_understands_no_file_and_reads_them_once(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("this was not to be read")

    monkeypatch.setattr("sluicegate.sql.source.tokens", refused)
    with psycopg.connect(dsn) as conn:
        assert schema_state(conn).state == "ok"
        monkeypatch.setattr("sluicegate.sql.manifest.read_text", refused)
        assert schema_state(conn).state == "ok"


def test_looking_leaves_no_trace_in_the_callers_transaction(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("set local search_path = public")
        conn.execute("create table public.mine (id int)")
        schema_state(conn)
        assert conn.execute("show search_path").fetchone() == ("public",)
        assert conn.execute("select to_regclass('public.mine') is not null").fetchone() == (True,)


@pytest.mark.parametrize("role", ["worker", "producer", "reader", "admin"])
def test_every_role_may_ask_whether_the_schema_fits(dsn: str, role: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(f"set role sluicegate_{role}")
        assert schema_state(conn).state == "ok"


def test_a_role_outside_is_told_which_grant_it_lacks(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("create role outsider_of_this_test")
        conn.execute("set role outsider_of_this_test")
        with pytest.raises(Forbidden, match="grant sluicegate_worker"):
            schema_state(conn)
        conn.rollback()

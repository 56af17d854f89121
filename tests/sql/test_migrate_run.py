"""What one run of the migrator does, on databases in every state."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import dict_row

from sluicegate.errors import InvalidArgument, SchemaMismatch, SluicegateError
from sluicegate.sql.migrate import migrate, schema_state
from tests.sql.small import THING, Small, ask, run, versions


def test_a_first_run_installs_everything_and_a_second_changes_nothing(small: Small, empty_dsn: str) -> None:
    first = small.migrate(empty_dsn)
    assert (first.version, first.applied, first.functions, first.changed) == (1, ("0001_thing",), ("greet",), True)
    assert ask(empty_dsn, "select sluicegate.greet()") == "one"

    rows = "select array_agg(xmin::text order by name) from sluicegate.function_version"
    before = ask(empty_dsn, rows)
    second = small.migrate(empty_dsn)
    assert second.to_dict() == {
        "version": 1,
        "changed": False,
        "applied": [],
        "functions": [],
        "dropped": [],
        "clock_restored": False,
        "grants": 0,
        "missing_roles": [],
        "left": [],
        "kept": [],
        "note": None,
    }
    assert ask(empty_dsn, rows) == before


@pytest.mark.both_versions
def test_what_really_ships_installs_and_is_then_ok(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn:
        assert schema_state(conn).state == "missing"
        report = migrate(conn)
        assert report.applied
        state = schema_state(conn)
        assert (state.state, state.usable, state.pending, state.stale_functions) == ("ok", True, (), ())
        assert ask(conn, "select sluicegate.enqueue('a', '1') ->> 'created'") == "true"


def test_progress_is_told_in_sentences(small: Small, empty_dsn: str) -> None:
    said: list[str] = []
    small.migrate(empty_dsn, progress=said.append)
    assert said == ["Migration 0001_thing: applying.", "Functions: 1 to create or replace."]


def test_files_that_come_later_are_applied_once_in_order(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    small.migration("0002_a", "alter table sluicegate.thing add column a integer;")
    small.migration("0003_b", "alter table sluicegate.thing add column b integer default 3;")
    assert small.migrate(empty_dsn).applied == ("0002_a", "0003_b")
    assert small.migrate(empty_dsn).applied == ()
    assert versions(empty_dsn) == [1, 2, 3]


def test_a_file_that_fails_leaves_nothing_and_earlier_ones_stand(small: Small, empty_dsn: str) -> None:
    small.migration("0002_ok", "alter table sluicegate.thing add column a integer;")
    broken = small.migration("0003_broken", "create table sluicegate.half (id bigint); select 1 / 0;")
    with pytest.raises(SluicegateError, match=r"Migration 0003_broken failed.*division by zero"):
        small.migrate(empty_dsn)
    assert versions(empty_dsn) == [1, 2]
    assert ask(empty_dsn, "select to_regclass('sluicegate.half')") is None

    broken.write_text("create table sluicegate.half (id bigint);")
    assert small.migrate(empty_dsn).applied == ("0003_broken",)


def test_a_changed_applied_file_is_refused_by_name(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    small.migration("0001_thing", THING + "-- one more thought\n")
    small.migration("0002_more", "create table sluicegate.more (id bigint);")
    with pytest.raises(SchemaMismatch, match="0001_thing was applied to this database with another text"):
        small.migrate(empty_dsn)
    assert versions(empty_dsn) == [1]


def test_a_renamed_applied_file_is_refused_by_both_names(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    (small.root / "migrations" / "0001_thing.sql").rename(small.root / "migrations" / "0001_other.sql")
    with pytest.raises(SchemaMismatch, match=r"applied as 0001_thing.*ships 0001_other"):
        small.migrate(empty_dsn)


def test_pre_stops_before_the_first_post_file(small: Small, empty_dsn: str) -> None:
    small.migration("0002_expand", "alter table sluicegate.thing add column a integer;")
    small.migration("0003_contract", "-- phase: post\nalter table sluicegate.thing drop column note;")
    small.migration("0004_expand", "alter table sluicegate.thing add column b integer;")
    report = small.migrate(empty_dsn, phase="pre")
    assert (report.applied, report.left) == (("0001_thing", "0002_expand"), ("0003_contract", "0004_expand"))
    assert report.functions == ("greet",)
    assert small.migrate(empty_dsn).applied == ("0003_contract", "0004_expand")


def test_somebody_elses_schema_is_left_alone(small: Small, empty_dsn: str) -> None:
    run(empty_dsn, "create schema sluicegate", "create table sluicegate.theirs (id int)")
    with pytest.raises(SchemaMismatch, match=r"not made by Sluicegate: it holds theirs"):
        small.migrate(empty_dsn)
    assert ask(empty_dsn, "select to_regclass('sluicegate.migration')") is None


def test_an_empty_schema_that_a_dba_made_is_used(small: Small, empty_dsn: str) -> None:
    run(empty_dsn, "create schema sluicegate")
    assert small.migrate(empty_dsn).applied == ("0001_thing",)


def test_a_connection_in_a_transaction_is_refused(small: Small, empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn:
        conn.execute("select 1")
        with pytest.raises(InvalidArgument, match="not in a transaction") as refused:
            small.migrate(conn)
    assert refused.value.field == "conn"


@pytest.mark.both_versions
def test_what_the_session_was_set_to_neither_disturbs_nor_changes(small: Small, empty_dsn: str) -> None:
    settings = {
        "default_transaction_isolation": "serializable",
        "default_transaction_read_only": "on",
        "search_path": "elsewhere",
        "lock_timeout": "1h",
        "check_function_bodies": "on",
        "standard_conforming_strings": "off",
        "row_security": "off",
    }
    small.migration("0002_text", r"alter table sluicegate.thing add column a text default '\';")
    with psycopg.connect(empty_dsn, row_factory=dict_row, prepare_threshold=0) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.autocommit = True
        for name, value in settings.items():
            conn.execute(psycopg.sql.SQL("set {} = {}").format(psycopg.sql.Identifier(name), value))
        conn.autocommit = False
        assert small.migrate(conn).version == 2
        assert (conn.autocommit, conn.isolation_level) == (False, psycopg.IsolationLevel.REPEATABLE_READ)
        assert conn.read_only is None
        for name, value in settings.items():
            row = conn.execute(psycopg.sql.SQL("show {}").format(psycopg.sql.Identifier(name))).fetchone()
            assert row == {name: value}


def test_an_unqualified_name_does_not_land_in_another_schema(small: Small, empty_dsn: str) -> None:
    small.migration("0002_lazy", "create table lazy (id bigint);")
    with pytest.raises(SluicegateError, match="0002_lazy"):
        small.migrate(empty_dsn)
    assert ask(empty_dsn, "select to_regclass('public.lazy')") is None

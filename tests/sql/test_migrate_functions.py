"""Functions follow their files: text, signature, presence, and the function itself."""

from __future__ import annotations

import psycopg
import pytest

from sluicegate.errors import SluicegateError
from sluicegate.sql.migrate import migrate, schema_state
from tests.sql.small import Small, ask, run

OVERLOADS = (
    "select array_agg(oid::regprocedure::text order by 1) from pg_proc where pronamespace = 'sluicegate'::regnamespace"
)


def test_only_a_function_whose_text_changed_is_replaced(small: Small, empty_dsn: str) -> None:
    small.function("other")
    small.migrate(empty_dsn)
    before = ask(empty_dsn, "select 'sluicegate.greet()'::regprocedure::oid")
    small.function("greet", body="select 'two'")
    assert small.migrate(empty_dsn).functions == ("greet",)
    assert ask(empty_dsn, "select sluicegate.greet()") == "two"
    assert ask(empty_dsn, "select 'sluicegate.greet()'::regprocedure::oid") == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("p_a integer", "text"), ("p_a integer, p_b integer default 1", "text")),
        (("p_a integer", "text"), ("p_a bigint", "text")),
        (("p_a integer", "text"), ("p_b integer", "text")),
        (("p_a integer default 1", "text"), ("p_a integer", "text")),
        (("p_a integer", "text"), ("p_a integer", "varchar")),
        (("p_a integer", "text"), ("p_a integer, out p_b text", "text")),
        (("", "text"), ("", "setof text")),
    ],
    ids=["parameter added", "type", "parameter renamed", "default removed", "result", "out parameter", "set"],
)  # fmt: skip
@pytest.mark.both_versions
def test_a_changed_signature_leaves_one_function(
    small: Small, empty_dsn: str, before: tuple[str, str], after: tuple[str, str]
) -> None:
    small.function("greet", *before)
    small.migrate(empty_dsn)
    small.function("greet", *after)
    assert small.migrate(empty_dsn).functions == ("greet",)
    assert len(ask(empty_dsn, OVERLOADS)) == 1
    assert small.migrate(empty_dsn).changed is False


def test_a_function_whose_file_vanished_is_dropped_and_others_stay(small: Small, empty_dsn: str) -> None:
    path = small.function("other", "p_a integer")
    small.migrate(empty_dsn)
    run(empty_dsn, "create function sluicegate.made_by_hand() returns int language sql as 'select 1'")
    path.unlink()
    assert small.migrate(empty_dsn).dropped == ("other",)
    assert ask(empty_dsn, OVERLOADS) == ["sluicegate.greet()", "sluicegate.made_by_hand()"]
    assert ask(empty_dsn, "select array_agg(name) from sluicegate.function_version") == ["greet"]


def test_a_vanished_function_that_was_dropped_by_hand_is_forgotten(small: Small, empty_dsn: str) -> None:
    path = small.function("other")
    small.migrate(empty_dsn)
    run(empty_dsn, "drop function sluicegate.other()")
    path.unlink()
    small.migrate(empty_dsn)
    assert ask(empty_dsn, "select array_agg(name) from sluicegate.function_version") == ["greet"]


@pytest.mark.parametrize(
    "change",
    [
        "create or replace function sluicegate.greet() returns text language sql as $$ select 'stolen' $$",
        "alter function sluicegate.greet() security definer",
        "alter function sluicegate.greet() reset search_path",
        "alter function sluicegate.greet() immutable",
        "drop function sluicegate.greet()",
        "alter function sluicegate.greet() rename to greeted",
    ],
)
def test_a_function_changed_by_hand_is_restored(small: Small, empty_dsn: str, change: str) -> None:
    small.migrate(empty_dsn)
    run(empty_dsn, change)
    report = small.migrate(empty_dsn)
    assert (report.functions, report.clock_restored) == (("greet",), False)
    assert ask(empty_dsn, "select sluicegate.greet()") == "one"
    facts = "select array[prosecdef::text, provolatile::text, proconfig::text] from pg_proc where oid = 'sluicegate.greet'::regproc"
    assert ask(empty_dsn, facts) == ["false", "v", '{"search_path=sluicegate, pg_temp"}']


def test_a_default_added_by_hand_is_taken_away_again(small: Small, empty_dsn: str) -> None:
    small.function("greet", "p_a integer")
    small.migrate(empty_dsn)
    run(
        empty_dsn,
        "create or replace function sluicegate.greet(p_a integer default 1) returns text language sql as $$ select '' $$",
    )
    assert small.migrate(empty_dsn).functions == ("greet",)
    with psycopg.connect(empty_dsn) as conn, pytest.raises(psycopg.errors.UndefinedFunction):
        conn.execute("select sluicegate.greet()")


def test_a_replaced_clock_is_restored_and_sleepers_are_told(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn, psycopg.connect(empty_dsn, autocommit=True) as sleeper:
        migrate(conn)
        sleeper.execute("listen sluicegate_clock")
        conn.execute(
            "create or replace function sluicegate.clock() returns timestamptz language sql"
            " as $$ select timestamptz '2001-01-01Z' $$"
        )
        assert schema_state(conn).clock_replaced
        report = migrate(conn)
        assert (report.clock_restored, report.functions) == (True, ("clock",))
        assert ask(conn, "select clock_timestamp() - sluicegate.clock() < interval '1 minute'")
        assert [note.channel for note in sleeper.notifies(timeout=10, stop_after=1)] == ["sluicegate_clock"]


def test_functions_may_call_each_other_in_any_order(small: Small, empty_dsn: str) -> None:
    small.function(
        "a", "p_n integer default sluicegate.z()", body="select case when p_n > 0 then sluicegate.b(p_n - 1) end"
    )
    small.function("b", "p_n integer", body="select sluicegate.a(p_n)")
    small.function("z", returns="integer", body="select 3")
    small.migrate(empty_dsn)
    assert ask(empty_dsn, "select sluicegate.a()") is None


def test_what_depends_on_a_function_stops_its_new_signature_with_a_name(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    run(empty_dsn, "create view public.v as select sluicegate.greet() as word")
    small.function("greet", "p_a integer default 1")
    small.function("aaa")
    with pytest.raises(SluicegateError, match=r"Replacing the function greet failed.*view public.v depends on"):
        small.migrate(empty_dsn)
    assert ask(empty_dsn, OVERLOADS) == ["sluicegate.greet()"]


def test_a_trigger_function_is_replaced_under_its_trigger(small: Small, empty_dsn: str) -> None:
    path = small.root / "functions" / "touch.sql"
    text = (
        "-- grants: none\ncreate or replace function sluicegate.touch() returns trigger\nlanguage plpgsql\n"
        "set search_path = sluicegate, pg_temp\nas $$ begin new.note := 'one'; return new; end $$;\n"
    )
    path.write_text(text)
    small.migrate(empty_dsn)
    run(
        empty_dsn,
        "create trigger touch before insert on sluicegate.thing for each row execute function sluicegate.touch()",
    )
    path.write_text(text.replace("'one'", "'two'"))
    small.migrate(empty_dsn)
    assert ask(empty_dsn, "insert into sluicegate.thing (id) values (1) returning note") == "two"


@pytest.mark.both_versions
def test_a_sql_function_with_a_parsed_body_is_loaded_after_what_it_calls(small: Small, empty_dsn: str) -> None:
    (small.root / "functions" / "aaa.sql").write_text(
        "-- grants: worker\ncreate or replace function sluicegate.aaa() returns text\nlanguage sql\n"
        "set search_path = sluicegate, pg_temp\nbegin atomic select sluicegate.zzz(); end;\n"
    )
    small.function("zzz")
    small.migrate(empty_dsn)
    assert ask(empty_dsn, "select sluicegate.aaa()") == "one"
    assert small.migrate(empty_dsn).changed is False


def test_an_error_in_one_function_keeps_none(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    small.function("greet", body="select 'two'")
    small.function("wrong", "p_a no_such_type")
    with pytest.raises(SluicegateError, match=r"Replacing the function wrong failed.*no_such_type"):
        small.migrate(empty_dsn)
    assert ask(empty_dsn, "select sluicegate.greet()") == "one"


def test_functions_of_a_newer_library_are_not_taken_back(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    small.function("greet", body="select 'newer'")
    small.migrate(empty_dsn)
    run(empty_dsn, "update sluicegate.function_version set library = '99.1.0'")
    small.function("greet", body="select 'older'")
    report = small.migrate(empty_dsn)
    assert report.changed is False
    assert report.note is not None
    assert "sluicegate 99.1.0" in report.note
    assert ask(empty_dsn, "select sluicegate.greet()") == "newer"


def test_a_library_that_does_not_know_its_version_replaces_what_differs(
    small: Small, empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.migrate(empty_dsn)
    small.function("greet", body="select 'two'")
    monkeypatch.setattr("sluicegate.sql.manifest.version", lambda _: "0")
    assert small.migrate(empty_dsn).functions == ("greet",)

"""Which files the migrator accepts, and how it reads them. No database."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import SluicegateError
from sluicegate.sql.lexer import statements, tokens
from sluicegate.sql.source import load_source
from tests.sql.small import Small

EMPTY = "select 1;\n"


def test_headers_say_phase_minimum_and_whether_a_transaction_holds_it(small: Small) -> None:
    small.migration("0002_more", "-- phase: post\n-- minimum: 2\n-- nontransactional\n-- Words.\nselect 1;\n")
    first, second = load_source(small.root).migrations
    assert (first.phase, first.minimum, first.transactional) == ("pre", 0, True)
    assert (second.phase, second.minimum, second.transactional) == ("post", 2, False)
    assert second.label == "0002_more"


def test_line_ends_of_another_system_do_not_change_a_checksum(small: Small) -> None:
    path = small.migration("0002_more", "select 1;\nselect 2;\n")
    before = load_source(small.root).migrations[1].sha256
    path.write_bytes(b"select 1;\r\nselect 2;\r\n")
    assert load_source(small.root).migrations[1].sha256 == before


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("2_short", EMPTY, "NNNN_lower_case"),
        ("0002_Upper", EMPTY, "NNNN_lower_case"),
        ("0003_gap", EMPTY, "0002 was expected"),
        ("0001_twice", EMPTY, "0002 was expected"),
        ("0002_x", "-- phase: later\n", "phase is 'later'"),
        ("0002_x", "-- minimum: soon\n", "minimum 'soon'"),
        ("0002_x", "-- nontransactional\ncreate index concurrently i on sluicegate.thing (id);\n", "if not exists"),
        ("0002_x", "create unique index concurrently if not exists i on sluicegate.thing (id);\n", "nontransactional"),
        ("0002_x", "drop index concurrently sluicegate.i;\n", "nontransactional"),
        ("0002_x", "select 1; commit;\n", "would end the transaction"),
        ("0002_x", "/* why */ rollback;\n", "would end the transaction"),
    ],
)  # fmt: skip
def test_a_migration_that_breaks_the_rules_is_refused_by_name(small: Small, name: str, text: str, fault: str) -> None:
    path = small.migration(name, text)
    with pytest.raises(SluicegateError, match=fault) as refused:
        load_source(small.root)
    assert path.name in str(refused.value)


def test_words_in_strings_bodies_and_comments_are_not_statements(small: Small) -> None:
    small.migration("0002_x", "do $$ begin perform 1; commit; end $$; select 'a; commit;'; -- ; commit;\n")
    assert len(load_source(small.root).migrations[1].statements) == 2


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("create or replace function sluicegate.f() returns int language sql as $$ select 1 $$;", "grants"),
        ("-- grants: everybody\ncreate or replace function sluicegate.f() returns int language sql as ' ';", "everybody"),
        ("-- grants: none\ncreate or replace function sluicegate.g() returns int language sql as ' ';", r"sluicegate\.f"),
        ("-- grants: none\ncreate function sluicegate.f() returns int language sql as ' ';", "create or replace"),
        ("-- grants: none\ncreate or replace function f() returns int language sql as ' ';", r"sluicegate\.f"),
        ("-- grants: none\ncreate or replace function sluicegate.f() returns int language sql as ' '; select 1;", "one"),
        ("-- grants: none\ncreate or replace function sluicegate.f() returns int language sql as ' '", "semicolon"),
    ],
)  # fmt: skip
def test_a_function_file_that_breaks_the_rules_is_refused_by_name(small: Small, text: str, fault: str) -> None:
    (small.root / "functions" / "f.sql").write_text(text)
    with pytest.raises(SluicegateError, match=fault) as refused:
        load_source(small.root)
    assert "f.sql" in str(refused.value)


def test_two_files_of_one_name_are_refused(small: Small) -> None:
    (small.root / "functions" / "deep").mkdir()
    (small.root / "functions" / "deep" / "greet.sql").write_text((small.root / "functions" / "greet.sql").read_text())
    with pytest.raises(SluicegateError, match="same name"):
        load_source(small.root)


def test_admin_is_implied_unless_nobody_may_call_it(small: Small) -> None:
    small.function("helper", grants="none")
    small.function("verb", grants="producer, worker")
    grants = {file.name: file.grants for file in load_source(small.root).functions}
    assert grants == {"greet": ("worker", "admin"), "helper": (), "verb": ("worker", "producer", "admin")}


def test_a_signature_ignores_comments_and_layout_but_not_names_defaults_or_types(small: Small) -> None:
    def signature(arguments: str, returns: str = "text") -> str:
        small.function("greet", arguments, returns)
        return load_source(small.root).functions[0].signature

    base = signature("p_a integer, p_b text default 'x, language y'")
    assert base == signature("p_a   integer, -- words\n    p_b text default 'x, language y'")
    others = {
        signature("p_a bigint, p_b text default 'x, language y'"),
        signature("p_c integer, p_b text default 'x, language y'"),
        signature("p_a integer, p_b text"),
        signature("p_a integer, p_b text default 'x, language y'", "bigint"),
        signature("p_a integer, p_b text default 'x, language y'", "table (a int, b text)"),
    }
    assert base not in others
    assert len(others) == 5


def test_functions_come_after_those_that_their_defaults_call(small: Small) -> None:
    small.function("a", "p_at text default sluicegate.b()", body="select sluicegate.c()")
    small.function("b", "p_at text default sluicegate.c()")
    small.function("c", body="select sluicegate.a()")
    names = [file.name for file in load_source(small.root).functions]
    assert names.index("c") < names.index("b") < names.index("a")


def test_functions_that_need_each_other_to_exist_are_refused(small: Small) -> None:
    small.function("a", "p_at text default sluicegate.b()")
    small.function("b", "p_at text default sluicegate.a()")
    with pytest.raises(SluicegateError, match="need each other"):
        load_source(small.root)


def test_what_ships_can_be_read() -> None:
    source = load_source()
    assert source.latest >= 1
    assert "clock" in {file.name for file in source.functions}


@given(st.text(alphabet="a1'\"$-/*;\n \\eE_é", max_size=60))
def test_tokens_lose_nothing(text: str) -> None:
    assert "".join(token.text for token in tokens(text)) == text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("select 1; select 2", ["select 1", "select 2"]),
        ("select 'a;b'; ;; -- only words;\n", ["select 'a;b'"]),
        ("select 'it''s;'; select \"a;b\"", ["select 'it''s;'", 'select "a;b"']),
        (r"select e'\';'; select 1", [r"select e'\';'", "select 1"]),
        ("do $x$ a; $$ b; $$ $x$; select $1", ["do $x$ a; $$ b; $$ $x$", "select $1"]),
        ("/* a; /* b; */ c; */ select /* d; */ 1;", ["select /* d; */ 1"]),
    ],
)
def test_statements_end_only_at_a_semicolon_of_their_own(text: str, want: list[str]) -> None:
    assert statements(text) == want


def test_every_shipped_function_body_is_one_token(tmp_path: Path) -> None:
    for file in load_source().functions:
        assert sum(token.kind == "body" for token in tokens(file.text)) == 1, file.name

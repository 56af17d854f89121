"""A rolling release: after the pre phase old code still finds what it calls; a later run takes it away."""

from __future__ import annotations

import psycopg
import pytest

from sluicegate.errors import SluicegateError
from sluicegate.sql.state import schema_state
from tests.sql.small import Small, ask, run

pytestmark = pytest.mark.both_versions

FORMS = (
    "select coalesce(array_agg(oid::regprocedure::text order by 1), '{}') from pg_proc"
    " where pronamespace = 'sluicegate'::regnamespace and proname = 'verb'"
)


def calls(dsn: str, *texts: str) -> list[str]:
    """What each call answers to a worker, or the SQLSTATE of its refusal."""
    found = []
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("set role sluicegate_worker")
        for text in texts:
            try:
                found.append(ask(conn, f"select sluicegate.{text}"))
            except psycopg.Error as error:
                found.append(str(error.sqlstate))
    return found


def test_a_function_that_vanished_stays_with_its_grants_until_a_run_without_a_phase(
    small: Small, empty_dsn: str
) -> None:
    gone = small.function("verb", "p_a integer", body="select sluicegate.helper()")
    helper = small.function("helper", body="select 'helped'", grants="none")
    small.function("greet", body="select 'one'")
    small.migrate(empty_dsn)
    run(empty_dsn, "grant execute on function sluicegate.helper() to sluicegate_worker")
    gone.unlink()
    helper.unlink()
    small.function("greet", body="select 'two'")
    report = small.migrate(empty_dsn, phase="pre")
    assert (report.functions, report.dropped, report.kept) == (("greet",), (), ("helper", "verb"))
    assert calls(empty_dsn, "verb(p_a => 1)", "greet()") == ["helped", "two"]
    report = small.migrate(empty_dsn, phase="pre")
    assert (report.changed, report.kept) == (False, ("helper", "verb"))
    with psycopg.connect(empty_dsn) as conn:
        state = schema_state(conn, directory=small.root)
    assert (state.state, state.usable) == ("behind", True)
    assert "for older libraries only: helper, verb" in state.message
    report = small.migrate(empty_dsn)
    assert (report.dropped, report.kept) == (("helper", "verb"), ())
    assert calls(empty_dsn, "verb(p_a => 1)") == ["42883"]


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ("p_a integer", "p_b text", ["verb(p_a => 1)"], ["verb(p_b => 'x')"]),
        ("p_a integer", "p_a bigint, p_b text", ["verb(p_a => 1)"], ["verb(p_a => 1::bigint, p_b => 'x')"]),
        ("p_a text, p_b integer", "p_b integer default 1", ["verb(p_a => '', p_b => 1)"], ["verb(p_b => 1)", "verb()"]),
        ("p_a text, out p_z text", "p_b bigint, out p_z text", ["verb(p_a => '')"], ["verb(p_b => 1)"]),
    ],
)
def test_a_form_that_old_code_calls_stays_beside_the_new_one(
    small: Small, empty_dsn: str, before: str, after: str, old: list[str], new: list[str]
) -> None:
    small.function("verb", before, body="select 'old'")
    small.migrate(empty_dsn)
    assert set(calls(empty_dsn, *old)) == {"old"}
    small.function("verb", after, body="select 'new'")
    report = small.migrate(empty_dsn, phase="pre")
    assert (report.functions, report.dropped, len(report.kept)) == (("verb",), (), 1)
    assert report.kept[0].startswith("verb(p_a ")
    assert (set(calls(empty_dsn, *old)), set(calls(empty_dsn, *new))) == ({"old"}, {"new"})
    assert small.migrate(empty_dsn, phase="pre").changed is False
    assert small.migrate(empty_dsn).dropped == report.kept
    assert len(ask(empty_dsn, FORMS)) == 1
    assert set(calls(empty_dsn, *new)) == {"new"}
    assert small.migrate(empty_dsn).changed is False


@pytest.mark.parametrize(
    ("before", "after", "old"),
    [
        ("p_a integer", "p_a integer, p_b integer default 1", ["verb(p_a => 1)", "verb(1)"]),
        ("p_a integer default 1", "p_b integer default 1, p_a integer default 2", ["verb(p_a => 1)", "verb()"]),
        ("p_a integer", "p_a integer default 1", ["verb(p_a => 1)"]),
    ],
)
def test_a_new_form_that_answers_the_old_calls_takes_the_place_of_the_old_one(
    small: Small, empty_dsn: str, before: str, after: str, old: list[str]
) -> None:
    small.function("verb", before, body="select 'old'")
    small.migrate(empty_dsn)
    small.function("verb", after, body="select 'new'")
    report = small.migrate(empty_dsn, phase="pre")
    assert (report.functions, report.kept, len(ask(empty_dsn, FORMS))) == (("verb",), (), 1)
    assert set(calls(empty_dsn, *old)) == {"new"}
    assert small.migrate(empty_dsn).changed is False


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("p_a integer", "text"), ("p_b integer", "text")),
        (("p_a integer", "text"), ("p_a integer", "varchar")),
        (("p_a integer default 1", "text"), ("p_a integer", "text")),
        (("p_a integer, p_b text default ''", "text"), ("p_a integer, p_b bigint default 1", "text")),
        (("p_a integer, p_b integer default 1", "text"), ("p_a integer", "text")),
    ],
    ids=["renamed", "result", "default removed", "both fill in", "argument removed"],
)
def test_forms_that_cannot_stand_beside_each_other_are_refused_where_somebody_calls_them(
    small: Small, empty_dsn: str, before: tuple[str, str], after: tuple[str, str]
) -> None:
    small.function("verb", *before, body="select 'old'")
    small.migrate(empty_dsn)
    small.function("verb", *after, body="select 'new'")
    small.function("greet", body="select 'two'")
    with pytest.raises(SluicegateError, match=r"new form of the function verb cannot stand beside") as refused:
        small.migrate(empty_dsn, phase="pre")
    assert "without --pre-only" in str(refused.value.next_step)
    assert calls(empty_dsn, "verb(p_a => 1)", "greet()") == ["old", "one"], "nothing of the step is kept"
    small.migrate(empty_dsn)
    assert len(ask(empty_dsn, FORMS)) == 1

    # Nobody outside calls what is granted to nobody.
    small.function("verb", *before, body="select 'old'", grants="none")
    small.migrate(empty_dsn)
    small.function("verb", *after, body="select 'new'", grants="none")
    assert small.migrate(empty_dsn, phase="pre").kept == ()
    assert len(ask(empty_dsn, FORMS)) == 1


def test_a_grant_that_is_withdrawn_is_withdrawn_later(small: Small, empty_dsn: str) -> None:
    small.function("verb", body="select 'old'")
    small.migrate(empty_dsn)
    small.function("verb", body="select 'new'", grants="admin")
    small.migrate(empty_dsn, phase="pre")
    assert calls(empty_dsn, "verb()") == ["new"]
    run(empty_dsn, "grant execute on function sluicegate.verb() to public")
    small.migrate(empty_dsn, phase="pre")
    assert not ask(empty_dsn, "select has_function_privilege('public', 'sluicegate.verb()', 'execute')")
    assert calls(empty_dsn, "verb()") == ["new"]
    small.migrate(empty_dsn)
    assert calls(empty_dsn, "verb()") == ["42501"]


def test_a_form_that_comes_back_is_no_longer_kept_for_others(small: Small, empty_dsn: str) -> None:
    small.function("verb", "p_a integer", body="select 'first'")
    small.migrate(empty_dsn)
    small.function("verb", "p_b text", body="select 'second'")
    assert small.migrate(empty_dsn, phase="pre").kept == ("verb(p_a integer)",)
    small.function("verb", "p_a integer", body="select 'third'")
    assert small.migrate(empty_dsn, phase="pre").kept == ("verb(p_b text)",)
    assert calls(empty_dsn, "verb(p_a => 1)", "verb(p_b => '')") == ["third", "second"]
    assert small.migrate(empty_dsn).dropped == ("verb(p_b text)",)
    assert ask(empty_dsn, FORMS) == ["sluicegate.verb(integer)"]
    assert calls(empty_dsn, "verb(p_a => 1)") == ["third"]


def test_a_script_for_a_dba_drops_what_was_kept(small: Small, empty_dsn: str) -> None:
    from sluicegate.sql.source import load_source
    from sluicegate.sql.texts import function_text, vanished_text

    small.function("verb", "p_a integer")
    small.migrate(empty_dsn)
    small.function("verb", "p_b text")
    small.migrate(empty_dsn, phase="pre")
    source = load_source(small.root)
    run(
        empty_dsn,
        *(function_text(file, source.library) for file in source.functions),
        vanished_text([file.name for file in source.functions]),
    )
    assert ask(empty_dsn, FORMS) == ["sluicegate.verb(text)"]
    assert small.migrate(empty_dsn).changed is False

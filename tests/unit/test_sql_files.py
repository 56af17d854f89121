"""The check of SQL files finds what it is there for."""

import pytest

from tools.sql_files import complaints, form_faults, syntax_faults

GOOD = """\
-- Answers one.
-- grants: worker, reader
create or replace function sluicegate.one(p_job sluicegate.job) returns bigint
language plpgsql
set search_path = sluicegate, pg_temp
as $$
declare
    v_job sluicegate.job;
begin
    select j.* into v_job from sluicegate.job j where j.id = p_job.id;
    return 1;
end
$$;
"""


def faults(text: str) -> list[str]:
    return [*syntax_faults(text)] or [*form_faults("one", text)]


def test_a_good_file_has_no_fault() -> None:
    assert faults(GOOD) == []


def test_the_files_of_the_repository_have_none() -> None:
    assert complaints() == ""


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("create or replace", "creat", 'at or near "creat"'),
        ("return 1", "return 1 + from", "syntax error"),
        ("select j.* into", "selec j.* into", "syntax error"),
        ("return 1", "v_unknown := 1", "v_unknown"),
        ("plpgsql\n", "sql\n", "syntax error"),
        ("sluicegate.one(", "sluicegate.two(", "named for its function, sluicegate.one"),
        ("sluicegate.one(", "one(", "named for its function, sluicegate.one"),
        ("create or replace", "create", "create or replace"),
        ("-- grants: worker, reader\n", "-- More.\n", "who may call it"),
        ("worker, reader", "everybody", "who may call it"),
        ("-- Answers one.\n", "-- a\n" * 5, "two to 5 comment lines"),
        ("-- Answers one.\n", "", "two to 5 comment lines"),
        ("sluicegate, pg_temp", "sluicegate", "search_path"),
        ("set search_path = sluicegate, pg_temp\n", "", "search_path"),
        ("$$;\n", "$$;\nselect 1;\n", "exactly one function"),
    ],
)
def test_a_faulty_file_is_told_what_is_wrong(old: str, new: str, fault: str) -> None:
    assert old in GOOD
    found = faults(GOOD.replace(old, new))
    assert len(found) >= 1
    assert fault in found[0]

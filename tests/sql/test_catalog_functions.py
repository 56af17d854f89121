"""Every function of the schema, read from the catalog, so that a new one is covered by being there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sluicegate.sql.grants import ROLES
from sluicegate.sql.source import load_source
from tests.sql.background import connect

FUNCTIONS = """
select p.proname, p.proconfig, p.prosecdef, p.provolatile::text, p.prosrc, l.lanname, pg_get_function_result(p.oid),
    pg_get_function_arguments(p.oid)
from pg_proc p join pg_language l on l.oid = p.prolang
where p.pronamespace = 'sluicegate'::regnamespace order by 1
"""
EXECUTE = """
select p.proname, coalesce(r.rolname, 'public')
from pg_proc p cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
left join pg_roles r on r.oid = a.grantee
where p.pronamespace = 'sluicegate'::regnamespace and a.grantee <> p.proowner
"""

# Whoever reads the time beside sluicegate.clock(), and why that may be. Free to everybody is a line about looked_at,
# the age of a hint: it is about how long ago somebody looked, whatever a test makes of the time, and decides nothing.
OTHER_CLOCKS = {
    "clock": "it is the clock",
    "admit": "how long a call waited for a lane, by a clock that no test stops",
    "ready_looked": "writes when it looked",
    "lapsed_looked": "writes when it looked",
    "pending_seen": "how long ago the session counted, by a clock that no test stops",
    "check_policy_lately": "how long ago the session checked, by a clock that no test stops",
    "wake_workers": "how long a transaction has gone on",
    "limit_fields": "names the zone localtime, to refuse it",
}
TIME = re.compile(
    r"\b(clock_timestamp|now|statement_timestamp|transaction_timestamp|timeofday)\s*\("
    r"|\b(current_timestamp|current_date|current_time|localtimestamp|localtime)\b"
    r"|'(now|today|tomorrow|yesterday)'::|(timestamptz|timestamp|date|time) '(now|today|tomorrow|yesterday)'",
    re.IGNORECASE,
)


@pytest.fixture
def functions(dsn: str) -> list[dict[str, Any]]:
    names = ("name", "settings", "definer", "volatile", "body", "language", "result", "arguments")
    with connect(dsn) as conn:
        found = [dict(zip(names, row, strict=True)) for row in conn.execute(FUNCTIONS)]
    assert {row["name"] for row in found} >= {"clock", "enqueue", "claim", "complete"}
    return found


@pytest.mark.both_versions
def test_every_shipped_function_is_installed_once_and_no_other(functions: list[dict[str, Any]]) -> None:
    assert sorted(row["name"] for row in functions) == sorted(file.name for file in load_source().functions)


def test_every_function_pins_its_search_path(functions: list[dict[str, Any]]) -> None:
    assert [row["name"] for row in functions if "search_path=sluicegate, pg_temp" not in (row["settings"] or [])] == []


@pytest.mark.both_versions
def test_every_function_is_granted_as_its_file_declares_and_never_to_public(dsn: str) -> None:
    declared = {(file.name, f"sluicegate_{grantee}") for file in load_source().functions for grantee in file.grants}
    with connect(dsn) as conn:
        assert {(name, role) for name, role in conn.execute(EXECUTE)} == declared


def test_admin_may_call_whatever_any_other_role_may(dsn: str) -> None:
    with connect(dsn) as conn:
        granted = {(name, role) for name, role in conn.execute(EXECUTE)}
    assert {name for name, role in granted if role == "sluicegate_admin"} == {name for name, _ in granted}
    assert {role for _, role in granted} <= set(ROLES)


def test_what_a_role_may_call_runs_as_the_owner_unless_it_touches_no_table(functions: list[dict[str, Any]]) -> None:
    granted = {file.name for file in load_source().functions if file.grants}
    invokers = {row["name"] for row in functions if row["name"] in granted and not row["definer"]}
    assert invokers <= {"clock"}


def test_helpers_run_as_whoever_called_them(functions: list[dict[str, Any]]) -> None:
    granted = {file.name for file in load_source().functions if file.grants}
    assert [row["name"] for row in functions if row["definer"] and row["name"] not in granted] == []


def test_the_clock_is_the_only_clock(functions: list[dict[str, Any]]) -> None:
    reading = {
        row["name"]
        for row in functions
        for line in (*row["body"].splitlines(), row["arguments"])
        if TIME.search(line) and "looked_at" not in line
    }
    assert reading == OTHER_CLOCKS.keys()


def test_no_function_that_reads_the_clock_claims_to_be_immutable(functions: list[dict[str, Any]]) -> None:
    callers = [row for row in functions if "sluicegate.clock(" in row["body"]]
    assert callers
    assert [row["name"] for row in callers if row["volatile"] == "i"] == []


def test_no_function_that_may_refuse_claims_to_be_immutable(functions: list[dict[str, Any]]) -> None:
    """A planner may run an immutable function early, and would then raise for a row that nobody asked about."""
    refusing = {"refuse"}
    while True:
        called = re.compile(rf"\bsluicegate\.({'|'.join(sorted(refusing))})\(")
        more = {row["name"] for row in functions if called.search(row["body"])} - refusing
        if not more:
            break
        refusing |= more
    assert refusing >= {"refuse", "whole_number", "check_queue_name", "check_worker", "check_heartbeats", "enqueue"}
    assert [row["name"] for row in functions if row["name"] in refusing and row["volatile"] == "i"] == []


def test_ids_are_bigint_in_every_signature(functions: list[dict[str, Any]]) -> None:
    wrong = [
        (row["name"], name, kind)
        for row in functions
        for name, kind in re.findall(r"\b(\w*_ids?|id|ids) (integer|smallint|integer\[\])", row["arguments"])
    ]
    assert wrong == []


def test_verbs_answer_with_one_jsonb_value(functions: list[dict[str, Any]]) -> None:
    granted = {file.name for file in load_source().functions if file.grants}
    assert {row["name"] for row in functions if row["name"] in granted and row["result"] != "jsonb"} == {"clock"}

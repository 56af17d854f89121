"""The one clock: what it reads, who may move it, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from sluicegate import testing
from sluicegate.errors import Forbidden, InvalidArgument, SchemaMismatch, Unavailable
from sluicegate.sql.migrate import migrate, schema_state
from sluicegate.testing import advance_clock, clock_at, freeze_clock, restore_clock, set_clock
from tests.sql.background import connect
from tests.sql.small import ask, run

WHEN = datetime(2026, 3, 8, 9, 59, 57, 123456, tzinfo=UTC)
SOON = timedelta(minutes=1)
CLOCK = "select sluicegate.clock()"


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn, autocommit=True) as opened:
        yield opened


def clock(target: str | psycopg.Connection[Any]) -> datetime:
    shown = ask(target, CLOCK)
    assert isinstance(shown, datetime)
    return shown


def is_real(target: str | psycopg.Connection[Any]) -> bool:
    return bool(
        ask(
            target, "select clock_timestamp() - sluicegate.clock() between interval '-1 minute' and interval '1 minute'"
        )
    )


def test_it_is_the_servers_clock_and_moves_within_a_transaction(dsn: str) -> None:
    with connect(dsn) as conn:
        first, second, began = clock(conn), clock(conn), ask(conn, "select now()")
        assert began < first < second
    assert is_real(dsn)


@pytest.mark.parametrize("setting", ["sluicegate.clock", "sluicegate.now", "timezone", "datestyle", "search_path"])
def test_it_reads_no_setting(conn: psycopg.Connection[Any], setting: str) -> None:
    values = {"timezone": "Pacific/Kiritimati", "datestyle": "German", "search_path": "pg_temp"}
    conn.execute("select set_config(%s, %s, false)", (setting, values.get(setting, "2001-01-01 00:00:00Z")))
    assert is_real(conn)


@pytest.mark.both_versions
def test_it_can_be_set_and_runs_on(dsn: str) -> None:
    set_clock(dsn, WHEN)
    with connect(dsn, autocommit=True) as conn:
        first, second = clock(conn), clock(conn)
    assert WHEN <= first < second < WHEN + SOON


@pytest.mark.both_versions
def test_it_can_stand_still_and_be_moved_to_the_microsecond(dsn: str) -> None:
    freeze_clock(dsn, WHEN)
    assert (clock(dsn), clock(dsn)) == (WHEN, WHEN)
    advance_clock(dsn, timedelta(days=300, microseconds=1))
    assert clock(dsn) == WHEN + timedelta(days=300, microseconds=1)
    advance_clock(dsn, -timedelta(days=300, microseconds=2))
    assert clock(dsn) == WHEN - timedelta(microseconds=1)


def test_a_running_clock_goes_on_running_when_it_is_advanced(dsn: str) -> None:
    set_clock(dsn, WHEN)
    advance_clock(dsn, timedelta(hours=1))
    with connect(dsn, autocommit=True) as conn:
        first, second = clock(conn), clock(conn)
    assert WHEN + timedelta(hours=1) <= first < second < WHEN + timedelta(hours=1) + SOON


def test_it_can_be_stopped_where_it_is_and_set_going_again(dsn: str) -> None:
    freeze_clock(dsn)
    stopped = clock(dsn)
    assert clock(dsn) == stopped
    set_clock(dsn, stopped + timedelta(days=1))
    with connect(dsn, autocommit=True) as conn:
        assert clock(conn) < clock(conn)


def test_the_real_clock_can_be_advanced(dsn: str) -> None:
    advance_clock(dsn, timedelta(days=400))
    assert ask(dsn, "select sluicegate.clock() - clock_timestamp() between interval '399 days' and interval '401 days'")


@pytest.mark.parametrize(
    "setting",
    ["set timezone = 'America/Los_Angeles'", "set datestyle = 'SQL, DMY'", "set intervalstyle = 'sql_standard'"],
)
def test_zone_and_style_of_the_session_do_not_shift_it(dsn: str, setting: str) -> None:
    """That day begins summer time in Los Angeles: a day added there has 23 hours."""
    with connect(dsn, autocommit=True) as conn:
        conn.execute(setting.encode())
        freeze_clock(conn, WHEN)
        advance_clock(conn, timedelta(days=1))
        assert clock(dsn) == WHEN + timedelta(days=1)
        set_clock(conn, WHEN)
        assert WHEN <= clock(dsn) < WHEN + SOON


def test_an_instant_in_another_zone_is_the_same_instant(dsn: str) -> None:
    freeze_clock(dsn, WHEN.astimezone(timezone(timedelta(hours=-7))))
    assert clock(dsn) == WHEN


def test_a_time_without_zone_is_refused(dsn: str) -> None:
    for move in (set_clock, freeze_clock):
        with pytest.raises(InvalidArgument, match="no time zone") as refused:
            move(dsn, WHEN.replace(tzinfo=None))
        assert refused.value.field == "when"
    assert is_real(dsn)


def test_restored_it_is_what_was_shipped(dsn: str) -> None:
    set_clock(dsn, WHEN)
    with connect(dsn) as conn:
        assert schema_state(conn).clock_replaced
        restore_clock(conn)
        assert not schema_state(conn).clock_replaced
    assert is_real(dsn)


def test_migrate_restores_it(dsn: str) -> None:
    set_clock(dsn, WHEN)
    with connect(dsn) as conn:
        report = migrate(conn)
    assert report.clock_restored
    assert "clock" in report.functions
    assert is_real(dsn)


def test_it_is_restored_when_the_block_ends_even_by_an_error(dsn: str) -> None:
    with clock_at(dsn, WHEN, frozen=True):
        assert clock(dsn) == WHEN
        advance_clock(dsn, timedelta(seconds=1))
        assert clock(dsn) == WHEN + timedelta(seconds=1)
    assert is_real(dsn)
    with pytest.raises(RuntimeError, match="mine"), clock_at(dsn, WHEN):
        raise RuntimeError("mine")
    assert is_real(dsn)


async def test_an_async_connection_is_awaited(db: psycopg.AsyncConnection[Any], dsn: str) -> None:
    await set_clock(db, WHEN)
    assert WHEN <= clock(dsn) < WHEN + SOON
    await freeze_clock(db, WHEN)
    await advance_clock(db, timedelta(seconds=2))
    assert clock(dsn) == WHEN + timedelta(seconds=2)
    await restore_clock(db)
    assert is_real(dsn)
    async with clock_at(db, WHEN, frozen=True):
        assert clock(dsn) == WHEN
    async with clock_at(dsn, WHEN, frozen=True):
        assert clock(dsn) == WHEN
    assert is_real(dsn)


async def test_an_async_connection_gets_the_same_errors(db: psycopg.AsyncConnection[Any]) -> None:
    await db.execute("set role sluicegate_admin")
    with pytest.raises(Forbidden, match="Only the owner"):
        await set_clock(db, WHEN)
    with pytest.raises(InvalidArgument):
        await set_clock(db, WHEN.replace(tzinfo=None))


def test_every_move_tells_those_who_sleep(dsn: str) -> None:
    with connect(dsn, autocommit=True) as sleeper:
        sleeper.execute("listen sluicegate_clock")
        moves: list[Callable[[], None]] = [
            lambda: set_clock(dsn, WHEN),
            lambda: freeze_clock(dsn),
            lambda: advance_clock(dsn, SOON),
            lambda: restore_clock(dsn),
        ]
        for number, move in enumerate(moves):
            move()
            assert [note.channel for note in sleeper.notifies(timeout=10, stop_after=1)] == ["sluicegate_clock"], number


def test_in_a_transaction_it_moves_for_others_at_commit(dsn: str) -> None:
    with connect(dsn) as conn:
        conn.execute("select 1")
        freeze_clock(conn, WHEN)
        assert clock(conn) == WHEN
        assert is_real(dsn)
        conn.commit()
    assert clock(dsn) == WHEN


@pytest.mark.parametrize("role", ["worker", "producer", "reader", "admin"])
def test_only_the_owner_of_the_schema_may_move_it(conn: psycopg.Connection[Any], role: str) -> None:
    conn.execute(f"set role sluicegate_{role}")
    moves: list[Callable[[], None]] = [
        lambda: set_clock(conn, WHEN),
        lambda: freeze_clock(conn),
        lambda: restore_clock(conn),
    ]
    for move in moves:
        with pytest.raises(Forbidden, match=r"Only the owner of the schema.*role that ran sluicegate migrate"):
            move()
    if role == "worker":
        assert is_real(conn)


def test_its_grants_survive_a_move(dsn: str) -> None:
    set_clock(dsn, WHEN)
    assert ask(dsn, "select has_function_privilege('sluicegate_worker', 'sluicegate.clock()', 'execute')")
    assert not ask(dsn, "select has_function_privilege('public', 'sluicegate.clock()', 'execute')")


def test_a_database_without_schema_is_not_given_a_clock(empty_dsn: str) -> None:
    with pytest.raises(SchemaMismatch, match="Run: sluicegate migrate"):
        set_clock(empty_dsn, WHEN)
    run(empty_dsn, "create schema sluicegate")
    with pytest.raises(SchemaMismatch, match="Run: sluicegate migrate"):
        freeze_clock(empty_dsn)


def test_a_database_that_does_not_answer_is_unavailable(tmp_path: Any) -> None:
    with pytest.raises(Unavailable):
        set_clock(f"host={tmp_path} dbname=none", WHEN)


def test_decisions_follow_it(dsn: str) -> None:
    freeze_clock(dsn, WHEN)
    query = "select sluicegate.enqueue('a', '1', p_run_at => %s) ->> 'state'"
    assert ask(dsn, query, (WHEN + SOON,)) == "scheduled"
    claim = "select sluicegate.claim('[{\"queues\": [\"a\"]}]') #> '{responses,0,claims}'"
    assert ask(dsn, claim) == []
    advance_clock(dsn, SOON)
    assert len(ask(dsn, claim)) == 1


def test_the_promised_names_are_exact() -> None:
    assert testing.__all__ == [
        *("advance_clock", "assert_enqueued", "assert_not_enqueued", "clock_at", "freeze_clock", "restore_clock"),
        *("run_jobs", "set_clock"),
    ]

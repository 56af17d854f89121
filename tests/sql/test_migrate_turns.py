"""Several migrators at once, and others who hold what a migrator needs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluicegate.errors import Unavailable
from sluicegate.sql.migrate import MigrationReport
from sluicegate.sql.texts import LOCK_KEY
from tests.sql.background import Background, connect, doomed, kill_with_backend
from tests.sql.small import Small, ask, run, versions
from tests.support.counts import rounds
from tests.support.servers import Server, TestRun
from tests.support.waiting import eventually

STATE = "select state, xact_start is null from pg_stat_activity where application_name = %s and datname = current_database()"


def test_a_migrator_says_whom_it_waits_for_and_goes_on_when_it_may(small: Small, empty_dsn: str) -> None:
    with connect(empty_dsn, application_name="other") as other:
        other.execute(f"select pg_advisory_xact_lock({LOCK_KEY})")
        waiting = Background(small, empty_dsn)
        waiting.hear()
        pid = other.info.backend_pid
        assert f'waits: another migrator is at work, pid {pid} (application "other", role postgres' in waiting.said[0]
        other.rollback()
    assert waiting.report().applied == ("0001_thing",)


def test_a_waiting_migrator_holds_no_transaction_between_its_tries(small: Small, empty_dsn: str) -> None:
    with connect(empty_dsn) as other, connect(empty_dsn, autocommit=True) as watcher:
        other.execute(f"select pg_advisory_xact_lock({LOCK_KEY})")
        waiting = Background(small, empty_dsn)
        eventually(lambda: watcher.execute(STATE, ("migrator",)).fetchone() == ("idle", True), "an idle migrator")
        assert not waiting.result.done()
        other.rollback()
    waiting.report()


def test_a_migrator_gives_up_and_names_the_holder(small: Small, empty_dsn: str) -> None:
    with connect(empty_dsn, application_name="stuck") as other:
        other.execute(f"select pg_advisory_xact_lock({LOCK_KEY})")
        with pytest.raises(Unavailable, match=r'gave up after 0\.3 s: another migrator.*"stuck".*pg_terminate_backend'):
            small.migrate(empty_dsn, timeout=0.3)


def test_the_lock_of_another_database_is_another_lock(small: Small, empty_dsn: str, dsn: str) -> None:
    with connect(dsn) as other:
        other.execute(f"select pg_advisory_xact_lock({LOCK_KEY})")
        small.migrate(empty_dsn, timeout=0.3)


def test_many_migrators_at_once_apply_everything_once(small: Small, empty_dsn: str) -> None:
    for number in range(2, 7):
        small.migration(f"{number:04d}_step", f"alter table sluicegate.thing add column c{number} integer;")
    start = threading.Barrier(6)

    def one(_: int) -> MigrationReport:
        with connect(empty_dsn, autocommit=True) as conn:
            start.wait(30)
            return small.migrate(conn)

    with ThreadPoolExecutor(6) as pool:
        reports = list(pool.map(one, range(6)))
    applied = sorted(label for report in reports for label in report.applied)
    assert applied == ["0001_thing", *(f"{number:04d}_step" for number in range(2, 7))]
    assert sum("greet" in report.functions for report in reports) == 1
    assert {report.version for report in reports} == {6}


def test_a_table_in_use_is_waited_for_in_short_tries(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    small.migration("0002_wide", "alter table sluicegate.thing add column wide integer;")
    with connect(empty_dsn, application_name="reader") as reader:
        reader.execute("select * from sluicegate.thing")
        waiting = Background(small, empty_dsn)
        eventually(lambda: any("in use by" in sentence for sentence in waiting.said), "the reader to be named")
        assert f"pid {reader.info.backend_pid}" in waiting.said[-1]
        reader.rollback()
    assert waiting.report().applied == ("0002_wide",)


def test_a_table_in_use_for_too_long_is_given_up_with_the_name_of_its_user(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    small.migration("0002_wide", "alter table sluicegate.thing add column wide integer;")
    with connect(empty_dsn, application_name="reader") as reader:
        reader.execute("select * from sluicegate.thing")
        with pytest.raises(Unavailable, match=r'Migration 0002_wide gave up.*in use by pid.*"reader"'):
            small.migrate(empty_dsn, timeout=0.1)
    assert versions(empty_dsn) == [1]


def test_a_killed_migrator_leaves_nothing_half_done_and_the_next_resumes(small: Small, empty_dsn: str) -> None:
    small.migration(
        "0002_long", "create table sluicegate.early (id bigint); select pg_advisory_xact_lock(42); select 1;"
    )
    with (
        connect(empty_dsn) as gate,
        connect(empty_dsn, autocommit=True) as watcher,
        doomed(small, empty_dsn) as process,
    ):
        gate.execute("select pg_advisory_xact_lock(42)")
        blocked = "select count(*) from pg_locks where locktype = 'advisory' and objid = 42 and not granted"
        eventually(lambda: ask(watcher, blocked), "the migrator inside 0002_long")
        kill_with_backend(process, watcher)
    assert versions(empty_dsn) == [1]
    assert ask(empty_dsn, "select to_regclass('sluicegate.early')") is None
    report = small.migrate(empty_dsn)
    assert (report.applied, report.functions) == (("0002_long",), ("greet",))


def test_a_function_replaced_by_somebody_at_the_same_moment_is_tried_again(small: Small, empty_dsn: str) -> None:
    small.migrate(empty_dsn)
    replaced = "create or replace function sluicegate.greet() returns text language sql as $$ select 'test' $$"
    with connect(empty_dsn) as tester, connect(empty_dsn, autocommit=True) as watcher:
        tester.execute(replaced)
        small.function("greet", body="select 'two'")
        waiting = Background(small, empty_dsn)
        waits = "select count(*) from pg_stat_activity where application_name = 'migrator' and wait_event_type = 'Lock'"
        eventually(lambda: ask(watcher, waits), "the migrator behind the tester")
        tester.commit()
    waiting.report()
    assert ask(empty_dsn, "select sluicegate.greet()") == "two"


def test_migrators_of_several_databases_create_the_roles_together(
    small: Small, test_run: TestRun, server_kind: str, worker_id: str
) -> None:
    names = [f"together_{number}" for number in range(4)]
    for _ in range(rounds(1, 3)):
        server = roles_server(test_run, server_kind, worker_id)
        admin = server.dsn("postgres")
        run(admin, *(f"drop role if exists sluicegate_{role}" for role in ("worker", "producer", "reader", "admin")))
        run(admin, *(f"create database {name}" for name in names))
        start = threading.Barrier(len(names))

        def one(name: str, start: threading.Barrier = start, server: Server = server) -> MigrationReport:
            with connect(server.dsn(name), autocommit=True) as conn:
                start.wait(30)
                return small.migrate(conn)

        with ThreadPoolExecutor(len(names)) as pool:
            assert all(report.missing_roles == () for report in pool.map(one, names))


def roles_server(test_run: TestRun, kind: str, worker_id: str) -> Server:
    """A server whose roles may be dropped, since no database of an earlier test is left: roles belong to the whole cluster."""
    server = test_run.server(f"{kind.partition('-')[0]}-roles-{worker_id}")
    admin = server.dsn("postgres")
    left = (
        "select coalesce(array_agg(datname), '{}') from pg_database where datname <> 'postgres' and not datistemplate"
    )
    run(admin, *(f'drop database "{name}" with (force)' for name in ask(admin, left)))
    return server

"""Files that no transaction can hold: built beside live work, resumed when cut short, never done twice."""

from __future__ import annotations

import pytest

from sluicegate.errors import SluicegateError, Unavailable
from sluicegate.sql.migrate import schema_state
from sluicegate.sql.source import load_source
from tests.sql.background import Background, connect, doomed, kill, kill_with_backend
from tests.sql.small import Small, ask, run, versions
from tests.support.waiting import eventually

INDEX = "-- nontransactional\n-- Words; with a semicolon.\ncreate index concurrently if not exists thing_note on sluicegate.thing (note);\n"
VALID = "select indisvalid from pg_index where indexrelid = to_regclass('sluicegate.thing_note')"
BUILDING = "select count(*) from pg_stat_activity where query like 'create%concurrently%' and wait_event_type = 'Lock' and datname = current_database()"
ROW = "select array[applied_at is not null, backend_pid is not null] from sluicegate.migration where version = 2"


@pytest.fixture
def online(small: Small, empty_dsn: str) -> str:
    """A database at version 1 with rows, and an index of version 2 to come."""
    small.migrate(empty_dsn)
    run(empty_dsn, "insert into sluicegate.thing select g, null, 'n' || g from generate_series(1, 100) g")
    small.migration("0002_index", INDEX)
    return empty_dsn


@pytest.mark.both_versions
def test_an_index_is_built_outside_a_transaction_and_recorded(small: Small, online: str) -> None:
    said: list[str] = []
    assert small.migrate(online, progress=said.append).applied == ("0002_index",)
    assert ask(online, VALID) is True
    assert ask(online, ROW) == [True, False]
    assert said[:1] == [
        "Migration 0002_index: create index concurrently if not exists thing_note on sluicegate.thing (note)"
    ]
    assert small.migrate(online).changed is False


def test_it_leaves_the_settings_of_the_session_as_they_were(small: Small, online: str) -> None:
    with connect(online, autocommit=True) as conn:
        conn.execute("set lock_timeout = '7s'; set search_path = public; set statement_timeout = '1h'")
        small.migrate(conn)
        shown = [ask(conn, f"show {name}") for name in ("lock_timeout", "search_path", "statement_timeout")]
    assert shown == ["7s", "public", "1h"]


def test_writers_are_not_held_up_while_it_waits_for_an_old_transaction(small: Small, online: str) -> None:
    with connect(online) as old, connect(online, autocommit=True) as writer:
        old.execute("insert into sluicegate.thing values (-1)")
        building = Background(small, online)
        eventually(lambda: ask(writer, BUILDING), "the build behind the old transaction")
        writer.execute("set lock_timeout = '1s'")
        writer.execute("insert into sluicegate.thing values (-2)")
        old.commit()
    assert building.report().applied == ("0002_index",)


def test_a_second_migrator_waits_for_the_first_and_does_nothing(small: Small, online: str) -> None:
    with connect(online) as old, connect(online, autocommit=True) as watcher:
        old.execute("insert into sluicegate.thing values (-1)")
        first = Background(small, online)
        eventually(lambda: ask(watcher, BUILDING), "the first build")
        second = Background(small, online)
        second.hear()
        assert "Migration 0002_index waits: it is being applied by pid" in second.said[0]
        assert 'application "migrator"' in second.said[0]
        old.commit()
    assert (first.report().applied, second.report().applied) == (("0002_index",), ())
    assert ask(online, VALID) is True


def test_a_second_migrator_gives_up_in_time(small: Small, online: str) -> None:
    with connect(online) as old, connect(online, autocommit=True) as watcher:
        old.execute("insert into sluicegate.thing values (-1)")
        first = Background(small, online)
        eventually(lambda: ask(watcher, BUILDING), "the first build")
        with pytest.raises(Unavailable, match=r"gave up after 0\.2 s: it is being applied by pid"):
            small.migrate(online, timeout=0.2)
        old.commit()
    first.report()


def test_a_build_that_waits_too_long_gives_up_and_the_next_run_finishes_it(small: Small, online: str) -> None:
    with connect(online) as old:
        old.execute("insert into sluicegate.thing values (-1)")
        with pytest.raises(Unavailable, match=r"transactions older than it did not end in time.*sluicegate doctor"):
            small.migrate(online, timeout=0.1)
        assert ask(online, VALID) is False
        assert ask(online, ROW) == [False, False]
        with connect(online) as look:
            assert schema_state(look, directory=small.root).pending == ("0002_index",)
        old.commit()
    assert small.migrate(online).applied == ("0002_index",)
    assert ask(online, VALID) is True
    assert versions(online) == [1, 2]


@pytest.mark.both_versions
def test_a_killed_build_is_resumed_and_its_invalid_index_replaced(small: Small, online: str) -> None:
    with connect(online) as old, connect(online, autocommit=True) as watcher, doomed(small, online) as process:
        old.execute("insert into sluicegate.thing values (-1)")
        eventually(lambda: ask(watcher, BUILDING), "the build in the other process")
        kill_with_backend(process, watcher)
        assert ask(watcher, VALID) is False
        assert ask(watcher, ROW) == [False, True]
        old.commit()
    assert small.migrate(online).applied == ("0002_index",)
    assert ask(online, VALID) is True
    assert ask(online, ROW) == [True, False]


def test_a_migrator_killed_alone_is_waited_for_while_its_server_process_works(small: Small, online: str) -> None:
    with connect(online) as old, connect(online, autocommit=True) as watcher, doomed(small, online) as process:
        old.execute("insert into sluicegate.thing values (-1)")
        eventually(lambda: ask(watcher, BUILDING), "the build in the other process")
        kill(process)
        next_one = Background(small, online)
        next_one.hear()
        assert "being applied by pid" in next_one.said[0]
        old.commit()
    assert next_one.report().applied == ("0002_index",)
    assert ask(online, VALID) is True


def test_rows_that_break_a_unique_index_stop_it_with_their_value(small: Small, online: str) -> None:
    run(online, "insert into sluicegate.thing values (-1, null, 'n1')")
    small.migration("0002_index", INDEX.replace("create index", "create unique index"))
    with pytest.raises(SluicegateError, match=r"Migration 0002_index.*\(note\)=\(n1\)"):
        small.migrate(online)
    run(online, "delete from sluicegate.thing where id = -1")
    assert small.migrate(online).applied == ("0002_index",)


def test_several_statements_are_run_one_by_one(small: Small, online: str) -> None:
    small.migration("0002_index", INDEX + "drop index concurrently if exists sluicegate.none; vacuum sluicegate.thing;")
    assert small.migrate(online).applied == ("0002_index",)


def test_a_changed_unfinished_file_is_refused(small: Small, online: str) -> None:
    with connect(online) as old:
        old.execute("insert into sluicegate.thing values (-1)")
        with pytest.raises(Unavailable):
            small.migrate(online, timeout=0.1)
        old.rollback()
    small.migration("0002_index", INDEX.replace("(note)", "(note, id)"))
    with pytest.raises(SluicegateError, match="0002_index was applied to this database with another text"):
        small.migrate(online)


def test_a_session_that_has_long_been_idle_is_not_waited_for(
    small: Small, online: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(online, autocommit=True, application_name="left behind") as idle:
        idle.execute(
            "insert into sluicegate.migration (version, name, sha256, phase, minimum, library, backend_pid, backend_start)"
            " select 2, 'index', %s, 'pre', 0, '0', a.pid, a.backend_start"
            " from pg_stat_activity a where a.pid = pg_backend_pid()",
            (load_source(small.root).migrations[1].sha256,),
        )
        with pytest.raises(Unavailable, match=r'being applied by pid.*"left behind"'):
            small.migrate(online, timeout=0.1)
        monkeypatch.setattr("sluicegate.sql.online.IDLE_SECONDS", 0)
        assert small.migrate(online).applied == ("0002_index",)


def test_a_number_that_another_session_got_since_is_not_taken_for_it(small: Small, online: str) -> None:
    with connect(online, autocommit=True) as other:
        other.execute(
            "insert into sluicegate.migration (version, name, sha256, phase, minimum, library, backend_pid, backend_start)"
            " select 2, 'index', %s, 'pre', 0, '0', a.pid, a.backend_start - interval '1 day'"
            " from pg_stat_activity a where a.pid = pg_backend_pid()",
            (load_source(small.root).migrations[1].sha256,),
        )
        assert small.migrate(online, timeout=0.1).applied == ("0002_index",)

"""``diagnose``: every fault is found, said why it matters, and what it says to do mends it."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from sluicegate.ops.checks import CHECKS, opening, snapshots, zones
from sluicegate.ops.doctor import Check, Circumstances, Diagnosis, diagnose
from sluicegate.sql.migrate import migrate
from tests.support.holder import Holder
from tests.support.servers import Server

CLAIM = """select sluicegate.claim('[{"queues": ["q"]}]')"""
FIRST_POLICY = """select sluicegate.set_admission_policy('q', '{"max_in_flight": 4}')"""


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as opened:
        yield opened


@pytest.fixture
def database(conn: psycopg.Connection[Any]) -> sql.Identifier:
    return sql.Identifier(conn.info.dbname)


@pytest.fixture
def plain(conn: psycopg.Connection[Any], server: Server, database: sql.Identifier) -> Iterator[tuple[str, str]]:
    """The name and DSN of a role that may connect and nothing else."""
    name = f"plain_{secrets.token_hex(4)}"
    conn.execute(sql.SQL("create role {} login password 'plain'").format(sql.Identifier(name)))
    yield name, server.dsn(conn.info.dbname, user=name, password="plain")
    conn.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


def checks(dsn: str, **circumstances: Any) -> dict[str, Check]:
    diagnosis = diagnose(Circumstances(dsn, **circumstances))
    for check in diagnosis.checks:
        assert check.found.endswith("."), check
        assert check.why.endswith("."), check
        assert (check.status == "ok") or check.next_step, f"a fault without a next step: {check}"
    return {check.name: check for check in diagnosis.checks}


@pytest.mark.both_versions
def test_a_sound_installation_has_no_fault(dsn: str) -> None:
    found = checks(dsn)
    assert [*found] == ["connection", *(name for name, _ in CHECKS)]
    # Zone data differ between machines.
    assert {name: check.status for name, check in found.items() if name != "zones"} == {
        name: "ok" for name in found if name != "zones"
    }
    assert found["versions"].facts["sluicegate"]
    assert found["schema"].facts["version"] == found["schema"].facts["latest"]
    assert found["clock"].facts["replaced"] is False


def test_the_whole_is_as_bad_as_its_worst_part_and_is_plain_json(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("revoke execute on function sluicegate.claim from sluicegate_worker")
    diagnosis = diagnose(Circumstances(dsn))
    assert diagnosis.status == "fail"
    data = json.loads(json.dumps(diagnosis.to_dict()))
    assert data["status"] == "fail"
    assert {*data["checks"][0]} == {"name", "status", "found", "why", "next_step", "statements", "facts"}
    assert Diagnosis(()).status == "ok"


def test_it_changes_nothing(dsn: str, conn: psycopg.Connection[Any]) -> None:
    before = conn.execute(
        "select pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())::text"
    ).fetchone()
    checks(dsn)
    with psycopg.connect(dsn, autocommit=True) as other:
        after = other.execute("select pg_snapshot_xmax(pg_current_snapshot())::text").fetchone()
    assert before is not None
    assert after is not None
    rows = conn.execute("select sum(n_tup_ins + n_tup_upd + n_tup_del) from pg_stat_xact_user_tables").fetchone()
    assert rows == (0,)


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        ("host=/nowhere-at-all dbname=x password=hidden-word", "Cannot connect"),
        ("postgresql://user:hidden-word@127.0.0.1:1/x?connect_timeout=2", "Cannot connect"),
        ("not a dsn hidden-word", "cannot be parsed"),
    ],
)
def test_a_database_out_of_reach_is_the_first_finding(dsn: str, said: str) -> None:
    found = checks(dsn)
    assert [*found] == ["connection", "secrecy"]
    assert found["connection"].status == "fail"
    assert said in found["connection"].found
    assert "doctor" not in (found["connection"].next_step or "")
    assert found["secrecy"].facts["budgets"] is None
    assert "there is no budget" not in found["secrecy"].found
    assert "hidden-word" not in json.dumps({name: check.to_dict() for name, check in found.items()})


@pytest.mark.both_versions
def test_a_database_without_schema_needs_migrate(empty_dsn: str) -> None:
    found = checks(empty_dsn)
    assert found["schema"].status == "fail"
    for name in ("schema", "clock", "privileges", "dead_rows"):
        assert "sluicegate migrate" in str(found[name].next_step), name


def test_a_moved_clock_is_found(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "create or replace function sluicegate.clock() returns timestamptz language sql"
        " as $$ select clock_timestamp() + interval '1 hour' $$"
    )
    found = checks(dsn)
    assert (found["clock"].status, found["schema"].status) == ("fail", "ok")
    assert "+3600 s" in found["clock"].found
    assert "sluicegate migrate" in str(found["clock"].next_step)


def test_a_function_replaced_by_hand_is_named(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("alter function sluicegate.complete reset search_path")
    schema = checks(dsn)["schema"]
    assert schema.status == "warn"
    assert "Replaced by hand: complete." in schema.found
    assert schema.facts["replaced_functions"] == ["complete"]


def test_an_unfinished_migration_is_named(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("update sluicegate.migration set applied_at = null")
    schema = checks(dsn)["schema"]
    assert schema.status == "fail"
    assert "0001_foundation was begun at" in schema.found
    assert "goes on" in str(schema.next_step)


def test_a_schema_that_does_not_fit_is_a_failure(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("update sluicegate.migration set sha256 = 'another'")
    schema = checks(dsn)["schema"]
    assert (schema.status, schema.facts["state"]) == ("fail", "tampered")


@pytest.mark.parametrize(
    "setting", ["default_transaction_isolation = 'repeatable read'", "default_transaction_read_only = on"]
)
@pytest.mark.parametrize("whose", ["database", "role in database"])
def test_defaults_that_stop_the_verbs_come_with_the_statement_that_mends_them(
    dsn: str, conn: psycopg.Connection[Any], database: sql.Identifier, setting: str, whose: str
) -> None:
    target = {"database": "alter database {0} set ", "role in database": "alter role postgres in database {0} set "}
    conn.execute(sql.SQL(target[whose] + setting).format(database))
    isolation = checks(dsn)["isolation"]
    assert isolation.status == "fail"
    conn.execute("set default_transaction_read_only = off")
    for statement in isolation.statements:
        conn.execute(statement.encode())
    assert checks(dsn)["isolation"].status == "ok"


def test_the_oldest_snapshot_names_its_holder_and_how_to_end_it(
    dsn: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(psycopg.connect(dsn, application_name="report of last night")) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select 1")
        young = checks(dsn)["snapshots"]
        assert young.status == "ok"
        assert "report of last night" in young.found

        monkeypatch.setattr(snapshots, "WARN_SECONDS", 0)
        old = checks(dsn)["snapshots"]
        assert old.status == "warn"
        for words in (f"pid {holder.info.backend_pid}", '"report of last night"', "idle in transaction for", "s old"):
            assert words in old.found
        assert old.statements == (f"select pg_terminate_backend({holder.info.backend_pid});",)
        monkeypatch.setattr(snapshots, "FAIL_SECONDS", 0)
        assert checks(dsn)["snapshots"].status == "fail"
        conn.execute(old.statements[0].encode())
    monkeypatch.undo()
    assert "Nobody" in checks(dsn)["snapshots"].found


@pytest.fixture
def preparing() -> Iterator[str]:
    """The DSN of a server of its own, on which transactions can be prepared."""
    place = Path(tempfile.mkdtemp(prefix="sluicegate-doctor-", dir="/tmp"))
    place.chmod(0o755)
    holder = Holder(place, "18", durable=False)
    holder.settings = holder.settings | {"max_prepared_transactions": "2"}
    holder.initdb()
    process = holder.start()
    yield f"postgresql://postgres:{holder.password}@/postgres?host={place}"
    process.terminate()
    process.wait(30)
    shutil.rmtree(place)


def test_a_prepared_transaction_is_found(preparing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "WARN_SECONDS", 0)
    monkeypatch.setattr(opening, "WARN_SECONDS", 0)
    with psycopg.connect(preparing, autocommit=True) as conn:
        migrate(conn)
        conn.execute("select sluicegate.enqueue('q')")
        conn.execute("begin")
        conn.execute(CLAIM)
        conn.execute("prepare transaction 'it''s forgotten'")
        conn.execute(FIRST_POLICY)
        conn.execute("select sluicegate.open_admission('q')")
        found = checks(preparing)
        for check in (found["snapshots"], found["opening"]):
            assert (check.status, check.statements) == ("warn", ("rollback prepared 'it''s forgotten';",))
            assert "prepared transaction 'it''s forgotten'" in check.found
        assert "of role postgres" in found["snapshots"].found
        conn.execute(found["opening"].statements[0].encode())
        conn.execute("select sluicegate.open_admission('q')")
        found = checks(preparing)
        assert "Nobody" in found["snapshots"].found
        assert "No queue waits" in found["opening"].found


def test_who_keeps_a_first_policy_from_opening_is_named_when_it_lasts(
    dsn: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No queue waits" in checks(dsn)["opening"].found
    conn.execute("select sluicegate.enqueue('q')")
    early = psycopg.connect(dsn, application_name="a slow claim")
    try:
        early.execute(CLAIM)
        conn.execute(FIRST_POLICY)
        young = checks(dsn)["opening"]
        assert young.status == "ok"
        assert "q of endpoint:default" in young.found
        monkeypatch.setattr(opening, "WARN_SECONDS", 0)
        lasting = checks(dsn)["opening"]
        assert lasting.status == "warn"
        for words in (
            f"pid {early.info.backend_pid}",
            '"a slow claim"',
            "idle in transaction",
            "q of endpoint:default",
        ):
            assert words in lasting.found
        assert lasting.statements == (f"select pg_terminate_backend({early.info.backend_pid});",)
        monkeypatch.setattr(opening, "FAIL_SECONDS", 0)
        assert checks(dsn)["opening"].status == "fail"
        conn.execute("select pg_terminate_backend(%s, 10000)", [early.info.backend_pid])
    finally:
        early.close()
    assert "opens with the next claim" in checks(dsn)["opening"].found
    conn.execute("select sluicegate.open_admission('q')")
    assert "No queue waits" in checks(dsn)["opening"].found


def test_sessions_that_may_not_be_looked_into_are_counted(
    dsn: str, conn: psycopg.Connection[Any], plain: tuple[str, str]
) -> None:
    name, own = plain
    conn.execute(f"grant sluicegate_worker to {name}")
    found = checks(own)["snapshots"]
    assert found.status == "warn"
    assert "cannot be looked into" in found.found
    assert "pg_read_all_stats" in str(found.next_step)
    conn.execute(f"grant pg_read_all_stats to {name}")
    assert checks(own)["snapshots"].status == "ok"


@pytest.mark.parametrize("role", ["worker", "producer", "reader", "admin"])
def test_a_member_of_any_of_our_roles_may_call_the_doctor(
    conn: psycopg.Connection[Any], plain: tuple[str, str], role: str
) -> None:
    name, own = plain
    conn.execute(f"grant sluicegate_{role} to {name}")
    found = checks(own)
    assert found["privileges"].status == "ok"
    assert found["privileges"].facts["member_of"] == [f"sluicegate_{role}"]
    assert found["schema"].status == "ok"
    # Queues of every scope, and who holds them up, are for those who may read everything.
    sees = role in ("reader", "admin")
    for check in ("opening", "policies"):
        assert found[check].status == ("ok" if sees else "warn"), found[check]
        assert ("not looked at" in found[check].found) is not sees
    with psycopg.connect(own, autocommit=True) as member:
        for function in ("opening_policies", "broken_policies"):
            if sees:
                assert member.execute(f"select sluicegate.{function}()").fetchone() == ([],)
            else:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    member.execute(f"select sluicegate.{function}()")


def test_a_role_outside_is_told_the_grant_it_needs(conn: psycopg.Connection[Any], plain: tuple[str, str]) -> None:
    name, own = plain
    found = checks(own)
    assert found["privileges"].statements == (f"grant sluicegate_worker to {name};",)
    assert (found["privileges"].status, found["schema"].status) == ("fail", "fail")
    conn.execute(found["privileges"].statements[0].encode())
    assert checks(own)["privileges"].status == "ok"


@pytest.mark.parametrize(
    "change",
    [
        "grant execute on function sluicegate.enqueue to public",
        "grant insert on sluicegate.job to sluicegate_worker",
        "grant select on sluicegate.job to sluicegate_reader",
        "grant select (lease_token_hash) on sluicegate.job to sluicegate_reader",
        "grant create on schema sluicegate to sluicegate_worker",
        "grant execute on function sluicegate.scope_id to sluicegate_worker",
        "revoke execute on function sluicegate.claim from sluicegate_worker",
        "revoke usage on schema sluicegate from sluicegate_producer",
        "grant usage on sequence sluicegate.principal_id to sluicegate_producer",
    ],
)
def test_a_grant_that_is_not_as_declared_is_a_failure_with_its_repair(
    dsn: str, conn: psycopg.Connection[Any], change: str
) -> None:
    conn.execute(change.encode())
    found = checks(dsn)["privileges"]
    assert found.status == "fail"
    for statement in found.statements:
        conn.execute(statement.encode())
    again = checks(dsn)["privileges"]
    for statement in again.statements:  # a revoke on a table takes the grants on its columns with it
        conn.execute(statement.encode())
    assert checks(dsn)["privileges"].status == "ok"


def test_a_dbas_grant_to_a_role_of_his_own_is_left_alone(
    dsn: str, conn: psycopg.Connection[Any], plain: tuple[str, str]
) -> None:
    conn.execute(f"grant select on sluicegate.job to {plain[0]}")
    assert checks(dsn)["privileges"].status == "ok"


def test_zone_data_that_differ_or_lack_are_named(
    dsn: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, at = zones.PROBES[2]
    monkeypatch.setattr(zones, "PROBES", ((place, at),))
    assert checks(dsn)["zones"].status == "ok"
    monkeypatch.setattr(zones, "_python", lambda *_: timedelta(hours=-5, minutes=-30))
    unused = checks(dsn)["zones"]
    assert (unused.status, unused.next_step) == ("ok", None)
    assert unused.found.endswith("No budget uses a zone that differs.")
    limit = {"max_claims_per_window": 1, "window": {"period": "day", "tz": place}}
    conn.execute("select sluicegate.set_admission_policy('q', %s)", (json.dumps({"limits": [limit]}),))
    differing = checks(dsn)["zones"]
    assert differing.status == "warn"
    assert "Africa/Cairo on 2026-07-15 UTC+03:00 (Python: UTC-05:30)" in differing.found
    monkeypatch.setattr(zones, "PROBES", (("Africa/Atlantis", at),))
    lacking = checks(dsn)["zones"]
    assert lacking.status == "fail"
    assert "tzdata" in str(lacking.next_step)


def test_binaries_replaced_under_a_running_server_are_found(dsn: str) -> None:
    found = checks(dsn, binary_version="18.99")["versions"]
    assert found.status == "fail"
    assert "embedded binaries 18.99" in found.found
    running = str(found.facts["server"])
    assert checks(dsn, binary_version=f"postgres (PostgreSQL) {running}")["versions"].status == "ok"


def test_dead_rows_are_counted_by_table(
    dsn: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.ops.checks.dead_rows.WARN_ROWS", 50)
    conn.execute("alter table sluicegate.owner set (autovacuum_enabled = off)")
    conn.execute("insert into sluicegate.owner (kind, slug) select 'team', 't' || g from generate_series(1, 100) g")
    conn.execute("delete from sluicegate.owner where kind = 'team'")
    conn.execute("select pg_stat_force_next_flush()")
    conn.execute("select 1")
    found = checks(dsn)["dead_rows"]
    assert found.status == "warn"
    assert "most in sluicegate.owner: 100 beside" in found.found
    conn.execute(found.statements[0].encode())
    assert checks(dsn)["dead_rows"].status == "ok"

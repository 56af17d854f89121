"""``migrate`` and ``doctor`` through the command line."""

import subprocess
import sys
from datetime import UTC, datetime

import psycopg
import pytest

from sluicegate.sql.lexer import statements
from sluicegate.testing import set_clock
from tests.acceptance.conftest import Cli


@pytest.fixture
def bare(cli: Cli, empty_dsn: str) -> Cli:
    """The command line on a database without our schema."""
    cli.environment["SLUICEGATE_DSN"] = empty_dsn
    return cli


def test_a_database_without_the_schema_says_what_to_run(bare: Cli) -> None:
    error = bare.refused("jobs")
    assert error["code"] == "schema_mismatch"
    assert "sluicegate migrate" in error["next_step"]


def test_migrate_brings_the_schema_and_a_second_run_has_nothing_to_do(bare: Cli) -> None:
    first = bare("migrate", "--json").json
    assert first["changed"] is True
    assert "0001_foundation" in first["applied"]
    second = bare("migrate", "--json").json
    assert (second["changed"], second["version"]) == (False, first["version"])
    assert "there was nothing to do" in bare("migrate").out
    assert bare("enqueue", "reviews", "1", "--json").json["created"] is True


def test_the_printed_sql_does_what_migrate_does(bare: Cli) -> None:
    script = bare("migrate", "--sql").out
    assert script.startswith("-- Sluicegate")
    assert bare("migrate", "--sql", "--json").json["sql"] == script
    assert bare("migrate", "0..", "--sql").out == script
    with psycopg.connect(bare.environment["SLUICEGATE_DSN"], autocommit=True) as connection:
        # One by one, as psql sends them: several in one message would be one transaction.
        for statement in statements(script):
            connection.execute(statement.encode())
    assert bare("migrate", "--json").json["changed"] is False


@pytest.mark.parametrize("versions", [("5..9",), ("0..999",), ("1..0",), ("one",)])
def test_a_range_that_does_not_exist_is_refused(cli_without_database: Cli, versions: tuple[str, ...]) -> None:
    error = cli_without_database("migrate", "--sql", *versions, "--json", status=2).error
    assert error["code"] == "invalid_argument"
    assert cli_without_database("migrate", *versions, "--json", status=2).error["field"] == "versions"


def test_doctor_finds_a_healthy_database_healthy(cli: Cli) -> None:
    report = cli("doctor", "--json").json
    assert report["status"] in ("ok", "warn")
    checks = {check["name"]: check for check in report["checks"]}
    assert {"connection", "versions", "schema", "clock", "zones", "isolation", "snapshots", "privileges"} <= set(checks)
    assert checks["schema"]["status"] == "ok"
    shown = cli("doctor").out
    assert all(name in shown for name in checks)


def test_doctor_says_what_to_do_about_a_fault(cli: Cli, bare: Cli, dsn: str) -> None:
    report = bare("doctor", "--json", status=1).json
    assert report["status"] == "fail"
    told = bare("doctor", status=1).out
    assert "What to do:" in told
    assert "sluicegate migrate" in told

    set_clock(dsn, datetime(2040, 1, 1, tzinfo=UTC))
    cli.environment["SLUICEGATE_DSN"] = dsn
    checks = {check["name"]: check for check in cli("doctor", "--json", status=None).json["checks"]}
    assert checks["clock"]["status"] != "ok"


def test_doctor_reports_a_database_out_of_reach_instead_of_failing(cli_without_database: Cli) -> None:
    report = cli_without_database("doctor", "--json", status=1).json
    connection = next(check for check in report["checks"] if check["name"] == "connection")
    assert connection["status"] == "fail"
    assert connection["next_step"]


def test_the_module_runs_as_well_as_the_program(cli: Cli) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sluicegate.cli.main", "jobs", "--json"],
        env=cli.environment,
        cwd=cli.place,
        capture_output=True,
        check=True,
    )
    assert b'"jobs": []' in done.stdout

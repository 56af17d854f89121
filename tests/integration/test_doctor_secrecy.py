"""What ``doctor`` says of who can read the DSN."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sluicegate.ops.checks import secrecy as looked
from sluicegate.ops.checks.result import Check
from sluicegate.ops.checks.secrecy import readers
from sluicegate.ops.doctor import Circumstances, diagnose
from tests.support.servers import Server

SAME = ({}, {"jobs_uid": os.geteuid()}, {"jobs_uid": 0})
BUDGET = """select sluicegate.set_admission_policy('%s', '{"max_in_flight": 4}')"""


def secrecy(dsn: str, **circumstances: Any) -> Check:
    (found,) = (check for check in diagnose(Circumstances(dsn, **circumstances)).checks if check.name == "secrecy")
    assert (found.status == "ok") or found.next_step, f"a fault without a next step: {found}"
    return found


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


@pytest.mark.parametrize(
    ("mode", "folder", "want"),
    [
        (0o600, 0o755, None),
        (0o644, 0o755, "every user"),
        (0o644, 0o700, None),
        (0o640, 0o755, "the group"),
        (0o640, 0o750, "the group"),
        (0o604, 0o750, None),
    ],
)
def test_who_can_read_a_file_depends_on_the_folders_above_it(
    tmp_path: Path, mode: int, folder: int, want: str | None
) -> None:
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and str(parent).count("/") > 1:
            parent.chmod(parent.stat().st_mode | 0o055)
    file = tmp_path / "folder" / "dsn.toml"
    file.parent.mkdir()
    file.write_text("dsn = 'x'")
    file.chmod(mode)
    tmp_path.chmod(0o755)
    file.parent.chmod(folder)
    found = readers(file)
    assert found is None if want is None else str(found).startswith(want)


def test_a_file_that_others_can_read_comes_with_its_chmod(dsn: str, tmp_path: Path) -> None:
    file = Path(f"/tmp/sluicegate-doctor-{secrets.token_hex(4)}")
    try:
        file.write_text("dsn = 'x'")
        file.chmod(0o644)
        found = secrecy(dsn, origin="file", files=(file,))
        assert (found.status, found.next_step) == ("fail", f"Run: chmod 600 {file}")
        assert f"{file} can be read by every user" in found.found
        file.chmod(0o600)
        assert secrecy(dsn, origin="file", files=(file,)).status == "ok"
        assert secrecy(dsn, origin="file", files=(file,), jobs_uid=os.geteuid() + 4321).status == "ok"
    finally:
        file.unlink()


def test_a_password_on_the_command_line_is_a_failure(dsn: str) -> None:
    found = secrecy(dsn, origin="flag", jobs_uid=4321)
    assert found.status == "fail"
    assert "ps" in found.found
    assert secrecy(f"host={dsn.rpartition('=')[2]}", origin="flag", jobs_uid=4321).status == "ok"


def test_jobs_that_could_change_a_budget_are_warned_of_and_nothing_else_is(
    dsn: str, conn: psycopg.Connection[Any], server: Server
) -> None:
    for circumstances in SAME:
        found = secrecy(dsn, **circumstances)
        assert found.status == "ok", circumstances
        assert "can read it there; there is no budget" in found.found
    for queue in ("mail", "reviews"):
        conn.execute(BUDGET % queue)
    for circumstances in SAME:
        found = secrecy(dsn, **circumstances)
        assert (found.status, found.facts["budgets"]) == ("warn", ["mail", "reviews"]), circumstances
        assert "and change the budget of mail, reviews with it." in found.found
    assert secrecy(dsn, jobs_uid=os.geteuid() + 4321).status == "ok"

    role = f"worker_{secrets.token_hex(4)}"
    conn.execute(f"create role {role} login password 'x' in role sluicegate_worker")
    try:
        worker = server.dsn(conn.info.dbname, user=role, password="x")
        assert secrecy(worker).status == "ok"
        conn.execute(f"grant sluicegate_admin to {role}")
        assert secrecy(worker).status == "warn"
    finally:
        conn.execute(f"drop role {role}")


def test_the_warning_says_what_can_be_done_here(
    dsn: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    conn.execute(BUDGET % "mail")
    monkeypatch.setattr(looked.os, "geteuid", lambda: 0)
    assert "setpriv" in str(secrecy(dsn).next_step)
    monkeypatch.setattr(looked.os, "geteuid", lambda: 4321)
    found = secrecy(dsn)
    assert "create role my_worker" in found.statements[0]
    found = secrecy(dsn, origin="embedded")
    assert (found.status, found.statements) == ("warn", ())
    assert "another user's account" in str(found.next_step)


def test_a_database_without_the_schema_or_out_of_reach_has_no_budget_to_change(empty_dsn: str) -> None:
    assert secrecy(empty_dsn).status == "ok"
    found = secrecy("postgresql:///nowhere?host=/nonexistent")
    assert (found.status, found.facts["budgets"]) == ("warn", None)
    assert "is not known" in found.found

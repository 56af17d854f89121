"""What a command gets that attaches to a private PostgreSQL."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from sluicegate.embedded import attach, status
from sluicegate.errors import InvalidArgument
from tests.integration.embedded.conftest import Fresh
from tests.integration.embedded.people import Place, User, wait_stopped
from tests.support.waiting import eventually


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def one(dsn: str, query: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def test_the_first_attach_makes_a_cluster_and_starts_it(fresh: Fresh) -> None:
    guest = fresh.guest
    assert one(guest.dsn, "select current_setting('server_version')") == guest.server_version
    assert one(guest.dsn, "select current_user::text || '@' || current_database()") == "sluicegate@sluicegate"
    assert (
        one(guest.dsn, "select pg_encoding_to_char(encoding) from pg_database where datname = 'sluicegate'") == "UTF8"
    )
    assert one(guest.dsn, "select datcollate from pg_database where datname = 'sluicegate'") == "C"
    assert one(guest.dsn, "show shared_preload_libraries") == "plpgsql"
    assert one(guest.dsn, "show max_connections") == "100"
    assert one(guest.dsn, "show timezone") == "UTC"
    assert guest.notice is None
    assert guest.process.poll() is None


def test_tables_of_others_land_in_public_although_our_role_and_schema_have_one_name(fresh: Fresh) -> None:
    with psycopg.connect(fresh.guest.dsn) as connection:
        connection.execute("create schema if not exists sluicegate")
        connection.execute("create table orders (id bigint)")
        row = connection.execute(
            "select relnamespace::regnamespace::text from pg_class where relname = 'orders'"
        ).fetchone()
        assert row == ("public",)
        connection.rollback()


def test_only_the_password_opens_it_and_nothing_listens_on_tcp(fresh: Fresh) -> None:
    guest, data = fresh.guest, fresh.data
    assert one(guest.dsn, "show listen_addresses") == ""
    assert one(guest.dsn, "select string_agg(distinct auth_method, ' ') from pg_hba_file_rules") == "scram-sha-256"
    assert str(one(guest.dsn, "select rolpassword from pg_authid where rolname = 'sluicegate'")).startswith(
        "SCRAM-SHA-256$"
    )
    password = (data / "password").read_text().strip()
    assert password in guest.dsn
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(guest.dsn.replace(password, "wrong"))


def test_its_files_and_sockets_are_for_their_owner_only(fresh: Fresh) -> None:
    guest, data, user = fresh.guest, fresh.data, fresh.user
    sockets = Path(guest.socket_dir)
    assert mode(data / "password") == mode(data / "server.log") == 0o600
    assert mode(data / "cluster") == mode(sockets) == 0o700
    assert mode(sockets.parent / "control") == 0o600
    assert (data / "cluster").stat().st_uid == sockets.stat().st_uid
    assert len(str(sockets / ".s.PGSQL.5432")) < 107
    assert (data / "password").stat().st_uid == data.stat().st_uid == user.account.pw_uid
    owner = Path(f"/proc/{guest.server_pid}").stat().st_uid
    assert owner == (data / "cluster").stat().st_uid != 0
    # Root's server has to pass through these two to what is its own; nobody can list them.
    assert mode(data) == mode(sockets.parent) == (0o711 if user.is_root else 0o700)


def test_a_running_server_is_attached_to_and_nothing_is_started(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    with attach(data, linger=1) as first:
        for _ in range(50):
            with attach(data) as next_one:
                assert (next_one.server_pid, next_one.supervisor_pid) == (first.server_pid, first.supervisor_pid)


def test_the_data_directory_may_lie_as_deep_as_it_likes(user: User, copied: Callable[..., Path]) -> None:
    data = copied(user, "deep/" + "/".join(["a-rather-long-name"] * 10) + "/it's data")
    guest = user.attach(data, linger=1)
    assert len(str(data)) > 190
    assert one(guest.dsn, "select 1") == 1


def test_it_stops_some_time_after_its_last_client(user: User, copied: Callable[..., Path]) -> None:
    data = copied(user)
    first = user.attach(data, linger=0.1)
    pids = (first.server_pid, first.supervisor_pid)
    second = user.attach(data)
    assert second.server_pid == first.server_pid
    first.leave()
    eventually(lambda: len(status(data).clients) == 1, "one of the two is gone")
    for _ in range(25):
        assert one(second.dsn, "select pg_sleep(0.02)::text") == ""
    second.leave()
    wait_stopped(data, *pids)
    assert not Path(first.socket_dir).parent.exists()
    assert not (data / "cluster" / "postmaster.pid").exists()


def test_the_next_start_has_the_same_dsn(user: User, copied: Callable[..., Path]) -> None:
    data = copied(user)
    first = user.attach(data, linger=0)
    first.leave()
    wait_stopped(data, first.server_pid, first.supervisor_pid)
    second = user.attach(data, linger=0)
    assert second.dsn == first.dsn
    assert second.server_pid != first.server_pid


def test_the_linger_comes_from_the_environment_of_the_starter(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    guest = me.attach(data, environment={"SLUICEGATE_EMBEDDED_LINGER": "0.25"})
    assert guest.dsn
    assert status(data).linger == 0.25
    assert me.attach(data, linger=7).dsn == guest.dsn
    assert status(data).linger == 0.25, "only a start counts"


def test_commands_that_start_at_once_share_one_supervisor(user: User, place: Place) -> None:
    data = place.new()
    guests = [user.begin(data, linger=1) for _ in range(8)]
    assert len({(guest.supervisor_pid, guest.server_pid, guest.dsn) for guest in guests}) == 1
    log = (data / "server.log").read_text()
    assert log.count("database system is ready to accept connections") == 1
    assert {client.pid for client in status(data).clients} == {guest.pid for guest in guests}


def test_root_and_an_ordinary_user_have_servers_at_the_same_time(
    user: User, copied: Callable[..., Path], me: User
) -> None:
    mine, theirs = copied(me, "mine"), copied(user, "theirs")
    guests = [me.attach(mine, linger=1), user.attach(theirs, linger=1)]
    assert [one(guest.dsn, "select 1") for guest in guests] == [1, 1]
    assert guests[0].server_pid != guests[1].server_pid


def test_a_copied_data_directory_has_sockets_of_its_own(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    first = me.attach(data, linger=1)
    assert first.dsn
    copy = copied(me, "copy")
    (copy / "sockets").write_text((data / "sockets").read_text())
    second = me.attach(copy, linger=1)
    assert second.socket_dir != first.socket_dir
    assert one(first.dsn, "select 1") == one(second.dsn, "select 1") == 1


def test_two_paths_to_one_directory_mean_the_same_server(me: User, copied: Callable[..., Path], scratch: Path) -> None:
    data = copied(me)
    (scratch / "link").symlink_to(data)
    assert me.attach(scratch / "link", linger=1).server_pid == me.attach(data, linger=1).server_pid


def test_attach_prints_nothing_and_its_context_lets_go(
    me: User, copied: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    data = copied(me)
    with attach(data, linger=0.1, label="a test") as attachment:
        pid = attachment.server_pid
        held = attachment.is_open
        assert [client.label for client in status(data).clients] == ["a test"]
        assert attachment.dsn not in repr(attachment)
    assert (held, attachment.is_open) == (True, False)
    attachment.close()
    assert pid is not None
    wait_stopped(data, pid)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_a_port_out_of_range_is_refused(scratch: Path, port: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        attach(scratch / "data", port=port)
    assert refused.value.field == "port"
    assert not (scratch / "data").exists()


def test_settings_of_libpq_in_the_environment_do_not_lead_astray(
    me: User, copied: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = copied(me)
    stray = {"PGPASSWORD": "wrong", "PGPORT": "1", "PGUSER": "x", "PGDATABASE": "x", "PGDATA": "/x", "PGHOST": "/x"}
    guest = me.attach(data, linger=1, environment=stray)
    assert guest.dsn
    for name, value in stray.items():
        monkeypatch.setenv(name, value)
    assert one(guest.dsn, "select 1") == 1


def test_no_secret_of_the_starter_reaches_the_server_or_the_supervisor(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    foreign = {"FAKETIME": "+0", "FAKETIME_FLAGS": "-", "LD_PRELOAD": "/nonexistent.so"}
    guest = me.attach(data, linger=1, environment={"SLUICEGATE_DSN": "postgresql://x", "API_KEY": "s3cret", **foreign})
    for pid in (guest.server_pid, guest.supervisor_pid):
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"PATH=" in environment
        assert b"s3cret" not in environment
        assert b"SLUICEGATE_DSN" not in environment
        assert b"FAKETIME" not in environment
        assert b"LD_PRELOAD" not in environment
        assert (
            guest.dsn.split(":")[2].split("@")[0].encode()
            not in environment + Path(f"/proc/{pid}/cmdline").read_bytes()
        )


def test_a_lost_password_is_replaced_at_the_next_start(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    before = (data / "password").read_text()
    (data / "password").unlink()
    guest = me.attach(data, linger=1)
    assert one(guest.dsn, "select 1") == 1
    assert (data / "password").read_text() != before
    (data / "password").unlink()
    assert "its next start sets a new password" in me.attach(data).refused()


def test_the_server_has_time_zones_and_functions_of_its_own(me: User, copied: Callable[..., Path]) -> None:
    guest = me.attach(copied(me), linger=1)
    assert int(str(one(guest.dsn, "select count(*) from pg_timezone_names"))) > 500
    assert (
        one(guest.dsn, "select '2026-07-01 12:00 America/Los_Angeles'::timestamptz::text") == "2026-07-01 19:00:00+00"
    )
    assert (
        one(guest.dsn, "select encode(sha256('x'), 'hex')")
        == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    )
    assert one(guest.dsn, "select gen_random_uuid() <> uuidv7()")
    extensions = str(one(guest.dsn, "select string_agg(name, ' ') from pg_available_extensions"))
    assert "pg_stat_statements" in extensions


def test_a_connection_of_a_forked_child_keeps_it_up(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    attachment = attach(data, linger=0.05)
    go, stay = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(stay)
        os.read(go, 1)
        os._exit(0)
    attachment.close()
    for _ in range(10):
        assert one(attachment.dsn, "select pg_sleep(0.02)::text") == ""
    os.close(stay)
    os.close(go)
    os.waitpid(child, 0)
    wait_stopped(data)

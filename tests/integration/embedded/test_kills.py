"""What kills leave behind, and that nothing acknowledged is ever lost."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sluicegate.embedded import status, stop
from sluicegate.embedded.processes import server_processes
from sluicegate.errors import EmbeddedError
from tests.integration.embedded.people import Place, User, cluster_state, wait_stopped
from tests.support.counts import rounds
from tests.support.requirements import requires
from tests.support.servers import is_running
from tests.support.waiting import eventually

RECOVERED = "automatic recovery in progress"


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def log(data: Path) -> str:
    return (data / "server.log").read_text()


class Writers:
    """Keeps moving amounts between two rows a transaction, so that their sum is 0, and counts what was acknowledged."""

    def __init__(self, dsn: str, count: int = 3) -> None:
        self.dsn = dsn
        self.acknowledged = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create table if not exists entry (amount bigint not null)")
            row = connection.execute("select count(*) from entry").fetchone()
        self._before = row[0] if row else 0
        self._threads = [threading.Thread(target=self._write) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        with contextlib.suppress(psycopg.Error), psycopg.connect(self.dsn, autocommit=True) as connection:
            while not self._stop.is_set():
                connection.execute("insert into entry values (7), (-7)")
                with self._lock:
                    self.acknowledged += 1

    def busy(self, more: int = 100) -> None:
        """Return when ``more`` further transactions were acknowledged."""
        goal = self.acknowledged + more
        eventually(lambda: self.acknowledged >= goal, "the writers are at work")

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def check(self, dsn: str) -> None:
        """Every acknowledged transaction is there, and none is there by half."""
        self.end()
        with psycopg.connect(dsn) as connection:
            row = connection.execute("select count(*), coalesce(sum(amount), 0) from entry").fetchone()
        assert row is not None
        rows, total = row
        assert total == 0
        assert rows - self._before >= 2 * self.acknowledged > 0


@pytest.fixture
def writing() -> Iterator[Callable[[str], Writers]]:
    started: list[Writers] = []

    def start(dsn: str) -> Writers:
        started.append(Writers(dsn))
        return started[-1]

    yield start
    for writers in started:
        writers.end()


def test_killing_the_starter_harms_nobody(
    user: User, copied: Callable[..., Path], writing: Callable[[str], Writers]
) -> None:
    data = copied(user)
    starter = user.attach(data, linger=0.2)
    pids = (starter.server_pid, starter.supervisor_pid)
    other = user.attach(data)
    writers = writing(other.dsn)
    writers.busy()
    starter.kill()
    eventually(lambda: [client.pid for client in status(data).clients] == [other.pid], "the starter is forgotten")
    writers.busy()
    writers.check(other.dsn)
    assert (other.server_pid, other.supervisor_pid) == pids
    assert all(map(is_running, pids))
    assert other.tell("open") == {"is_open": True}
    other.kill()
    wait_stopped(data, *pids)


def test_killing_the_starter_while_it_makes_the_cluster_harms_nobody(me: User, place: Place) -> None:
    data = place.new()
    starter = me.begin(data, linger=1)
    eventually((data / "cluster.unfinished").exists, "initdb is at work")
    starter.kill()
    assert me.attach(data).server_version
    assert not (data / "cluster.unfinished").exists()
    assert log(data).count("is ready to accept connections") == 1


def test_killing_the_supervisor_while_it_makes_the_cluster_costs_only_time(me: User, place: Place) -> None:
    data = place.new()
    starter = me.begin(data, linger=1)
    eventually((data / "cluster.unfinished" / "base").exists, "initdb is at work")
    kill(int((data / "supervisor.lock").read_text()))
    assert "ended before it had started it" in starter.refused()
    assert me.attach(data, linger=1).server_version
    assert not (data / "cluster.unfinished").exists()


def test_killing_the_supervisor_stops_postgresql_cleanly(
    user: User, copied: Callable[..., Path], writing: Callable[[str], Writers]
) -> None:
    data = copied(user)
    guest = user.attach(data, linger=1)
    bindir = status(data).bindir
    assert bindir is not None
    writers = writing(guest.dsn)
    writers.busy()
    kill(guest.supervisor_pid)
    eventually(lambda: not is_running(guest.server_pid), "PostgreSQL ends by itself")
    assert cluster_state(data, bindir) == "shut down"
    assert "received fast shutdown request" in log(data)
    assert not status(data).running
    assert guest.tell("open") == {"is_open": False}

    renewed = guest.tell("renew")
    assert renewed["renewed"] is True
    assert renewed["is_open"] is True
    assert renewed["dsn"] == guest.dsn
    assert renewed["server_pid"] != guest.server_pid
    writers.check(renewed["dsn"])
    assert RECOVERED not in log(data)
    assert guest.tell("renew")["renewed"] is False


def test_a_stopping_server_whose_supervisor_was_killed_is_waited_for(user: User, copied: Callable[..., Path]) -> None:
    data = copied(user)
    first = user.attach(data, linger=1)
    with psycopg.connect(first.dsn, autocommit=True) as connection:
        connection.execute("create table kept as select 1 as value")
    os.kill(first.server_pid, signal.SIGSTOP)
    kill(first.supervisor_pid)
    second = user.begin(data, linger=1)
    lock = data / "supervisor.lock"
    eventually(lambda: lock.read_text().strip() not in ("", str(first.supervisor_pid)), "another supervisor has come")
    assert is_running(first.server_pid)
    assert log(data).count("starting PostgreSQL") == 1
    os.kill(first.server_pid, signal.SIGCONT)
    assert second.server_pid != first.server_pid
    with psycopg.connect(second.dsn) as connection:
        assert connection.execute("select value from kept").fetchone() == (1,)
    assert RECOVERED not in log(data)


def test_a_killed_postmaster_is_restarted_and_recovered(
    user: User, copied: Callable[..., Path], writing: Callable[[str], Writers]
) -> None:
    data = copied(user)
    guest = user.attach(data, linger=1)
    before = guest.server_pid
    for _ in range(rounds(1, 4)):
        writers = writing(guest.dsn)
        writers.busy()
        killed = before
        kill(killed)
        eventually(lambda: _runs_as_another(data, killed), "it runs again")  # noqa: B023
        before = status(data).server_pid or 0
        writers.check(guest.dsn)
    assert log(data).count(RECOVERED) == rounds(1, 4)
    assert guest.tell("open") == {"is_open": True}
    assert user.attach(data).server_pid == before


def test_a_server_that_still_ends_after_its_supervisor_was_killed_is_waited_for(
    user: User, copied: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = copied(user)
    guest = user.attach(data, linger=60)
    server = server_processes(data / "cluster")
    pause = time.sleep

    def go_on(seconds: float) -> None:
        for process in server:
            with contextlib.suppress(ProcessLookupError):
                kill(process.pid, signal.SIGCONT)
        pause(seconds)

    for process in server:
        kill(process.pid, signal.SIGSTOP)
    kill(guest.supervisor_pid)
    guest.kill()
    with pytest.raises(EmbeddedError, match="stop"):
        stop(data, timeout=0.5)
    # It ends only when it has been seen: else there was nothing to stop.
    monkeypatch.setattr(time, "sleep", go_on)
    assert stop(data) is True
    assert server_processes(data / "cluster") == []
    assert stop(data) is False


def test_killing_everything_at_once_is_recovered_at_the_next_attach(
    user: User, copied: Callable[..., Path], writing: Callable[[str], Writers]
) -> None:
    data = copied(user)
    for done in range(1, rounds(1, 4) + 1):
        guest = user.attach(data, linger=1)
        sockets = Path(guest.socket_dir)
        writers = writing(guest.dsn)
        writers.busy()
        # Stopped first, or the server would end by itself, and cleanly, when its supervisor dies.
        everything = [guest.supervisor_pid, *(found.pid for found in server_processes(data / "cluster", sockets))]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in reversed(everything):
                kill(process, number)
        guest.kill()
        eventually(lambda: not server_processes(data / "cluster", sockets), "nothing is left")  # noqa: B023
        assert (data / "cluster" / "postmaster.pid").exists()
        assert (sockets / ".s.PGSQL.5432.lock").exists()
        again = user.attach(data, linger=1)
        writers.check(again.dsn)
        assert again.dsn == guest.dsn
        assert log(data).count(RECOVERED) == done
        again.leave()


def test_orphaned_backends_are_ended_before_the_next_start(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    guest = me.attach(data, linger=1)
    sockets = Path(guest.socket_dir)
    with psycopg.connect(guest.dsn, autocommit=True) as connection:
        backend = connection.info.backend_pid
        os.kill(backend, signal.SIGSTOP)
        os.kill(guest.supervisor_pid, signal.SIGSTOP)
        kill(guest.server_pid)
        kill(guest.supervisor_pid)
        eventually(
            lambda: [found.pid for found in server_processes(data / "cluster", sockets)] == [backend], "one is left"
        )
        again = me.attach(data, linger=1)
        assert again.server_pid != guest.server_pid
        assert not is_running(backend)


def test_a_zombie_postmaster_is_no_obstacle_and_is_reaped_by_its_parent(me: User, copied: Callable[..., Path]) -> None:
    """Where we are process 1, or adopt orphans as here, a killed server stays as our zombie, its pid taken."""
    data = copied(me)
    parent = me.attach(data, linger=1, adopts_orphans=True)
    os.kill(parent.supervisor_pid, signal.SIGSTOP)
    kill(parent.server_pid)
    kill(parent.supervisor_pid)
    dead = (parent.supervisor_pid, parent.server_pid)
    for pid in dead:
        eventually(lambda pid=pid: _state(pid) == "Z", "it is a zombie")  # type: ignore[misc]
    os.kill(parent.server_pid, 0)
    assert (data / "cluster" / "postmaster.pid").read_text().startswith(f"{parent.server_pid}\n")

    other = me.attach(data, linger=1)
    assert other.server_pid not in dead
    assert [_state(pid) for pid in dead] == ["Z", "Z"], "nobody but their parent can reap them"
    os.kill(other.supervisor_pid, signal.SIGSTOP)
    kill(other.server_pid)
    kill(other.supervisor_pid)

    renewed = parent.tell("renew")
    assert renewed["renewed"] is True
    assert renewed["server_pid"] not in (*dead, other.server_pid)


def test_the_last_supervisor_and_server_are_reaped_before_a_start(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    parent = me.attach(data, linger=1, adopts_orphans=True)
    assert parent.tell("kill") == {"states": ["Z", "Z"]}
    assert parent.tell("renew")["renewed"] is True
    assert [_state(pid) for pid in (parent.supervisor_pid, parent.server_pid)] == ["gone", "gone"]


@requires("pid-namespace")
def test_as_process_1_it_reaps_what_was_killed_and_starts_anew(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    first = me.attach(data, linger=1, before=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
    assert first.facts["pid"] == 1
    for done in range(1, 3):
        assert first.tell("kill") == {"states": ["Z", "Z"]}
        dead = eventually(lambda: _zombies_if_all_are(first.pid), "its children have ended too")
        renewed = first.tell("renew")
        assert renewed["renewed"] is True
        assert log(data).count(RECOVERED) == done
        assert [pid for pid in dead if _state(pid) != "gone"] == []


def test_sigterm_to_the_supervisor_stops_postgresql_cleanly(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    guest = me.attach(data, linger=1)
    bindir = status(data).bindir
    assert bindir is not None
    os.kill(guest.supervisor_pid, signal.SIGTERM)
    wait_stopped(data, guest.server_pid, guest.supervisor_pid)
    assert cluster_state(data, bindir) == "shut down"
    assert not Path(guest.socket_dir).parent.exists()


def test_a_server_that_cannot_run_is_restarted_a_bounded_number_of_times(me: User, copied: Callable[..., Path]) -> None:
    data = copied(me)
    first = me.attach(data, linger=1)
    assert first.dsn
    configuration = data / "cluster" / "postgresql.auto.conf"
    good = configuration.read_text()
    configuration.write_text(f"{good}shared_buffers = 'nonsense'\n")
    kill(first.server_pid)
    eventually(lambda: status(data).state in ("waiting", "starting"), "it has ended")
    waiting = me.attach(data)
    said = waiting.refused()
    assert f"{data}/cluster/postgresql.conf (or postgresql.auto.conf) is wrong" in said
    assert "Correct it" in said
    wait_stopped(data, first.supervisor_pid)
    assert 2 <= log(data).count("configuration file") <= 10
    assert "is wrong" in me.attach(data, linger=1).refused()
    configuration.write_text(good)
    assert me.attach(data, linger=1).dsn == first.dsn


def test_a_data_directory_that_is_moved_away_ends_its_server(
    me: User, copied: Callable[..., Path], scratch: Path
) -> None:
    data = copied(me)
    first = me.attach(data, linger=1)
    assert first.dsn
    data.rename(scratch / "moved")
    again = copied(me)
    second = me.attach(again, linger=1)
    assert second.server_pid != first.server_pid
    first.leave()
    eventually(lambda: not is_running(first.supervisor_pid), "the first supervisor ends")
    assert not is_running(first.server_pid)
    with psycopg.connect(second.dsn) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert status(again).server_pid == second.server_pid


def _runs_as_another(data: Path, killed: int) -> bool:
    found = status(data)
    return found.state == "running" and found.server_pid not in (None, killed)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def _zombies_if_all_are(unshare: int) -> list[int]:
    """All processes of a pid namespace but its first, by their pids outside, if they have ended; else none."""
    child = int(Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()[0])
    namespace = Path(f"/proc/{child}/ns/pid").readlink()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "ns" / "pid").readlink() == namespace:
                found.append(int(entry.name))
    found.remove(child)
    return found if all(_state(pid) == "Z" for pid in found) else []

"""One PostgreSQL cluster on disk and the server process that works on it.

The server is our child in the foreground, never started by pg_ctl, so that its end is seen at once and ours ends it.
Its working directory is always the cluster. Where the account it runs as cannot walk to the cluster by its path, as
below root's private home, that open directory is also how it finds it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sluicegate.embedded.account import ServerAccount, die_with_parent, require_passwd_entry, server_environment
from sluicegate.embedded.binaries import Binaries
from sluicegate.embedded.failures import Site, explain
from sluicegate.embedded.layout import DataDir
from sluicegate.embedded.other_major import require_same_major
from sluicegate.embedded.processes import end_old_server
from sluicegate.embedded.sockets import SocketDir
from sluicegate.errors import EmbeddedError

__all__ = ["DATABASE", "SUPERUSER", "Cluster"]

SUPERUSER = "sluicegate"
DATABASE = "sluicegate"
DEFAULT_PORT = 5432
_ENTERED = "/proc/self/cwd"
_FIRST_MAJOR_TO_ENTER = 16
_READY_LINE = 7
_CONFIGURATION = """
# Written by Sluicegate when it made this cluster; change what you like.
# Sockets, listen_addresses and port are given on the command line at each start.
shared_preload_libraries = 'plpgsql'
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %q%u@%d %a '
log_lock_waits = on
"""


@dataclass(frozen=True)
class Cluster:
    """A cluster and how to run it. ``port`` is a TCP port on 127.0.0.1, or None for unix sockets only."""

    data: DataDir
    sockets: SocketDir
    account: ServerAccount
    binaries: Binaries
    port: int | None = None

    @property
    def socket_port(self) -> int:
        """The number in the socket's name, which every client has to give."""
        return self.port or DEFAULT_PORT

    @property
    def site(self) -> Site:
        return Site(self.data.path, self.data.log, self.port)

    def exists(self) -> bool:
        return (self.data.cluster / "PG_VERSION").exists()

    def ensure(self) -> None:
        """Make the cluster unless it is there. Raises EmbeddedError, also for one of another major version.

        Call it only while no server runs on it. A lost password is replaced.
        """
        if not self.exists():
            self._initialise()
            return
        require_same_major(self.data, self.binaries)
        if not self.data.has_password():
            change = f"alter role {SUPERUSER} password '{self.data.make_password()}'"
            self._alone(self.data.cluster, change, "set a new password")

    def _initialise(self) -> None:
        """Make it beside its place and rename it when it is whole, so that a kill leaves nothing half made."""
        require_passwd_entry(self.account)
        place = self.data.unfinished_cluster
        self.sockets.sweep_server()
        try:
            # What works in it still was started by a supervisor that has been killed.
            end_old_server(place, self.sockets.server)
            shutil.rmtree(place, ignore_errors=True)
            self._require_free()
            place.mkdir(mode=0o700)
            self.account.take(place)
            self._initdb(place)
            self._configure(place)
            self._alone(place, f"create database {DATABASE}", "make its first database")
            place.rename(self.data.cluster)
        except OSError as error:
            shutil.rmtree(place, ignore_errors=True)
            raise explain(str(error), self.site, f"make a cluster in {self.data.path}") from error
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise

    def _configure(self, place: Path) -> None:
        descriptor = os.open(place / "postgresql.conf", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "a", encoding="utf-8") as configuration:
            configuration.write(_CONFIGURATION)

    def _require_free(self) -> None:
        if self.data.cluster.exists() and any(self.data.cluster.iterdir()):
            raise EmbeddedError(
                f"{self.data.cluster} exists but is no PostgreSQL cluster: it has no PG_VERSION.",
                next_step="Move it away, or choose another directory with --data-dir or SLUICEGATE_DATA_DIR.",
            )

    def _initdb(self, place: Path) -> None:
        password = self.data.password() if self.data.has_password() else self.data.make_password()
        secret = self.sockets.server / "password"
        # In a directory of another account root never follows what may have been put there: O_EXCL, O_NOFOLLOW.
        descriptor = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(f"{password}\n")
            self.account.take(secret)
            options = [f"--pwfile={secret}", "-A", "scram-sha-256", "--no-locale", "-E", "UTF8", "-U", SUPERUSER]
            self._run("initdb", place, options, "")
        finally:
            secret.unlink(missing_ok=True)

    def _alone(self, place: Path, statement: str, doing: str) -> None:
        """Run one statement in single-user mode, which needs no password and lets nobody else in."""
        output = self._run("postgres", place, ["postgres"], f"{statement}\n", first="--single")
        if "ERROR:" in output:
            raise explain(output, self.site, doing)

    def _run(self, program: str, place: Path, options: list[str], text: str, first: str | None = None) -> str:
        command = [str(self.binaries.program(program)), *([first] if first else []), "-D", self._path_for(place)]
        done = subprocess.run(
            [*command, *options],
            cwd=place,
            env=server_environment(),
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            preexec_fn=die_with_parent(),
            **self.account.identity(),
        )
        output = bytes(done.stdout).decode(errors="replace")
        if done.returncode != 0:
            raise explain(output, self.site, f"use the cluster in {self.data.path} ({program})")
        return output

    def _path_for(self, place: Path) -> str:
        if self.account.can_enter(place):
            return str(place)
        if self.binaries.major >= _FIRST_MAJOR_TO_ENTER and Path(_ENTERED).exists():
            return _ENTERED
        raise EmbeddedError(
            f"PostgreSQL runs as the user {self.account.name}, who may not enter {place}.",
            next_step="Choose a directory below one that everybody may enter, for instance with "
            "SLUICEGATE_DATA_DIR=/var/lib/sluicegate.",
        )

    def start(self) -> int:
        """Start the server and return its pid; call it in the main thread. It is not ready yet."""
        # Only the postmaster may write it, and a stale one would speak for a server that is gone.
        self.sockets.sweep_server()
        log = os.open(self.data.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            server = subprocess.Popen(
                [str(self.binaries.program("postgres")), "-D", self._path_for(self.data.cluster), *self._settings()],
                cwd=self.data.cluster,
                env=server_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 (the supervisor has one thread)
                **self.account.identity(),
            )
        except OSError as error:
            raise explain(str(error), self.site, "start") from error
        finally:
            os.close(log)
        # The supervisor reaps every child itself, orphans of this one included.
        server.returncode = 0
        return server.pid

    def _settings(self) -> list[str]:
        settings = {
            "listen_addresses": "" if self.port is None else "127.0.0.1",
            "port": str(self.socket_port),
            "unix_socket_directories": str(self.sockets.server),
            "unix_socket_permissions": "0700",
            # Our role and our schema have one name, so "$user" would put everybody's own tables among ours.
            "search_path": "public",
            "logging_collector": "off",
        }
        return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def is_ready(self, pid: int) -> bool:
        """Whether the server we started as ``pid`` says that it takes connections."""
        try:
            lines = (self.data.cluster / "postmaster.pid").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > _READY_LINE and lines[0] == str(pid) and lines[_READY_LINE].strip() == "ready"

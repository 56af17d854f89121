"""The process that owns one PostgreSQL of a test run: ``python -m tests.support.holder PLACE VERSION DURABLE``.

It lives as long as somebody holds the writing end of ``PLACE/../alive`` open, which is the test runner for its whole
life; so a server never outlives its run, however the run ends. It is ready when ``PLACE/ready.json`` exists.
"""

import ctypes
import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.binaries import copy_binaries

SETTINGS = {
    "listen_addresses": "''",
    "max_connections": "300",
    "shared_buffers": "'256MB'",
    "max_wal_size": "'2GB'",
    "log_line_prefix": "'%m [%p] %d %a '",
    "log_lock_waits": "on",
    "timezone": "'UTC'",
}
FAST = {"fsync": "off", "full_page_writes": "off", "wal_init_zero": "off"}
PR_SET_PDEATHSIG = 1


def server_account() -> pwd.struct_passwd | None:
    """The account the server runs as, or None for our own: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError(
        "running as root, and this machine has neither a user postgres nor a user nobody to run the server"
    )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


class Holder:
    """Makes and runs one server below ``place``."""

    def __init__(self, place: Path, version: str, durable: bool) -> None:
        self.place = place
        self.data = place / "data"
        self.log = place / "server.log"
        self.password = secrets.token_hex(16)
        self.settings = SETTINGS if durable else SETTINGS | FAST
        self.account = server_account()
        self.bin = copy_binaries(version, place / "binaries")

    def run_as_server(self, command: list[str], **options: object) -> "subprocess.Popen[bytes]":
        if self.account is not None:
            options |= {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}
        environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
        return subprocess.Popen(command, env=environment, cwd=self.place, **options)  # type: ignore[call-overload, no-any-return]

    def initdb(self) -> None:
        if self.account is not None:
            os.chown(self.place, self.account.pw_uid, self.account.pw_gid)
        secret = self.place / "password"
        secret.touch(0o600)
        secret.write_text(self.password)
        if self.account is not None:
            os.chown(secret, self.account.pw_uid, self.account.pw_gid)
        command = [str(self.bin / "initdb"), "-D", str(self.data), "-U", "postgres", "-A", "scram-sha-256"]
        command += [f"--pwfile={secret}", "--no-locale", "-E", "UTF8", "--no-sync"]
        made = self.run_as_server(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = made.communicate()
        secret.unlink()
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed:\n{output.decode(errors='replace')}")
        lines = [f"{name} = {value}" for name, value in self.settings.items()]
        with (self.data / "postgresql.auto.conf").open("a") as conf:
            conf.write("\n".join(lines) + "\n")

    def start(self) -> "subprocess.Popen[bytes]":
        command = [str(self.bin / "postgres"), "-D", str(self.data), "-k", str(self.place)]
        with self.log.open("ab") as log:
            server = self.run_as_server(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent
            )
        pid_file = self.data / "postmaster.pid"
        deadline = time.monotonic() + 60
        while True:
            lines = pid_file.read_text().splitlines() if pid_file.exists() else []
            if len(lines) >= 8 and lines[7].strip() == "ready" and int(lines[0]) == server.pid:
                return server
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the test server did not start:\n{self.log.read_text(errors='replace')}")
            time.sleep(0.01)


def wait_for_end(fifo: Path) -> None:
    """Return when nobody holds the writing end, also if that is so already."""
    end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(end, True)
    while os.read(end, 1024):
        pass
    os.close(end)


def hold(place: Path, version: str, durable: bool) -> None:
    holder = Holder(place, version, durable)
    holder.initdb()
    server = holder.start()
    ready = {
        "version": version,
        "pid": server.pid,
        "password": holder.password,
        "bin": str(holder.bin),
        "data": str(holder.data),
    }
    unfinished = place / "ready.tmp"
    unfinished.write_text(json.dumps(ready))
    unfinished.rename(place / "ready.json")
    wait_for_end(place.parent / "alive")
    server.send_signal(signal.SIGINT)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.send_signal(signal.SIGQUIT)
        server.wait()
    for name in ("data", "binaries"):
        shutil.rmtree(place / name, ignore_errors=True)


if __name__ == "__main__":
    os.umask(0o022)
    hold(Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "durable")

"""What a bare machine may lack, how to tell, and what would allow it.

A test says ``@requires("pgbouncer")``. Where the tool is missing the test does not run, and the end of the run
names it together with the package that would allow it; in a full run it fails instead.
"""

import functools
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

DEBIAN_15 = Path("/usr/lib/postgresql/15")


@dataclass(frozen=True)
class Tool:
    """Something a test may need; ``remedy`` completes the sentence "to run them: ..."."""

    name: str
    remedy: str
    present: Callable[[], bool]


def _runs(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def find_program(name: str) -> str | None:
    """The path of a program, also where Debian keeps those of the administrator."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _can_mount_tmpfs() -> bool:
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory(prefix="sluicegate-mount-") as place:
        if not _runs("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place):
            return False
        return _runs("umount", place)


def _reaches_package_index() -> bool:
    with tempfile.TemporaryDirectory(prefix="sluicegate-index-") as place:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
        return _runs(*pip, "download", "--no-deps", "--no-cache-dir", "--dest", place, "iniconfig")


def _second_user() -> bool:
    if os.geteuid() != 0:
        return False
    try:
        return pwd.getpwnam("nobody").pw_uid != 0
    except KeyError:
        return False


TOOLS = (
    Tool(
        "postgresql-15",
        "apt-get install postgresql-15 (Debian 12)",
        (DEBIAN_15 / "bin" / "postgres").exists,
    ),
    Tool(
        "plpgsql_check",
        "apt-get install postgresql-15-plpgsql-check (Debian 12)",
        (DEBIAN_15 / "lib" / "plpgsql_check.so").exists,
    ),
    Tool("pgbouncer", "apt-get install pgbouncer", lambda: find_program("pgbouncer") is not None),
    Tool(
        "tmpfs",
        "apt-get install mount, and run as root where mounting is allowed (containers: CAP_SYS_ADMIN)",
        _can_mount_tmpfs,
    ),
    Tool(
        "pid-namespace",
        "apt-get install util-linux, and run as root where namespaces may be made (containers: CAP_SYS_ADMIN)",
        lambda: os.geteuid() == 0 and _runs("unshare", "--pid", "--fork", "--mount-proc", "true"),
    ),
    Tool("package-index", "a network in which pip reaches a package index", _reaches_package_index),
    Tool("second-user", "apt-get install passwd, and run as root where the user nobody exists", _second_user),
)


@functools.cache
def missing(name: str) -> Tool | None:
    """The tool if this machine lacks it, else None. Raises KeyError for a name that is not in ``TOOLS``."""
    tool = {tool.name: tool for tool in TOOLS}[name]
    played = os.environ.get("SLUICEGATE_TEST_LACKS", "").split(",")
    return None if tool.present() and name not in played else tool


def requires(*names: str) -> pytest.MarkDecorator:
    """Mark a test, a class or a parameter with the tools it cannot do without."""
    known = {tool.name for tool in TOOLS}
    if unknown := set(names) - known:
        raise ValueError(f"tests/support/requirements.py does not know {sorted(unknown)}; add a Tool for it")
    return pytest.mark.requires(*names)

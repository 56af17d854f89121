"""Two kinds of user, data directories that stop with their test, and a made cluster to copy, which is quicker."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sluicegate.embedded import stop
from tests.integration.embedded.people import Guest, Place, User, ourselves, somebody_ordinary
from tests.support.requirements import requires
from tests.support.servers import TestRun

_USERS = [pytest.param("ourselves", id="root" if os.geteuid() == 0 else "ordinary")]
if os.geteuid() == 0:
    _USERS.append(pytest.param("ordinary", id="ordinary", marks=requires("second-user")))


@pytest.fixture(params=_USERS)
def user(request: pytest.FixtureRequest, scratch: Path) -> Iterator[User]:
    """Root and an ordinary user, if we are root; else ourselves."""
    found = _make_user(request.param, scratch)
    yield found
    found.end()


@dataclass(frozen=True)
class Fresh:
    """A cluster that this user's first attach has made. Look at it, and change nothing."""

    user: User
    data: Path
    guest: Guest


@pytest.fixture(params=_USERS, scope="module")
def fresh(request: pytest.FixtureRequest, test_run: TestRun) -> Iterator[Fresh]:
    scratch = test_run.scratch()
    user = _make_user(request.param, scratch)
    with Place(scratch) as place:
        data = place.new()
        guest = user.attach(data, linger=1)
        assert guest.dsn
        yield Fresh(user, data, guest)
        user.end()
    shutil.rmtree(scratch)


def _make_user(kind: str, scratch: Path) -> User:
    home = scratch / "home"
    home.mkdir()
    return ourselves(home) if kind == "ourselves" else somebody_ordinary(home)


@pytest.fixture
def me(scratch: Path) -> Iterator[User]:
    """Whoever runs the tests, for what does not depend on the account."""
    home = scratch / "my-home"
    home.mkdir()
    found = ourselves(home)
    yield found
    found.end()


@pytest.fixture
def ordinary(scratch: Path) -> Iterator[User]:
    """Somebody who is not root: ``nobody`` if we are root, else ourselves."""
    home = scratch / "ordinary-home"
    home.mkdir()
    found = somebody_ordinary(home)
    yield found
    found.end()


@pytest.fixture
def place(scratch: Path) -> Iterator[Place]:
    with Place(scratch) as found:
        yield found


@pytest.fixture
def template(test_run: TestRun) -> Path:
    """A stopped data directory of ours, made once a run. Copy it, never use it."""
    path = test_run.place / "embedded-template"
    with test_run.locked("embedded-template.lock"):
        if not (path / "cluster").exists():
            with_home = ourselves(test_run.place)
            guest = with_home.attach(path, linger=0)
            assert guest.dsn
            guest.leave()
            stop(path, force=True)
    return path


@pytest.fixture
def copied(template: Path, place: Place) -> Callable[..., Path]:
    """Makes data directories of a user out of the template: ``copied(user)``, ``copied(user, "name")``."""

    def copy(user: User, name: str = "data") -> Path:
        path = place.new(name)
        subprocess.run(["cp", "-a", template, path], check=True)
        for leftover in ("server.log", "sockets", "supervisor.lock", "starter.lock"):
            (path / leftover).unlink(missing_ok=True)
        if os.geteuid() == 0:
            _give(path, template, user)
        return path

    return copy


def _give(path: Path, template: Path, user: User) -> None:
    """copytree keeps modes but not owners: ours is root's, and its cluster belongs to the server's account."""
    user.own(path)
    if user.is_root:
        cluster = (template / "cluster").stat()
        for inner in (path / "cluster", *(path / "cluster").rglob("*")):
            os.chown(inner, cluster.st_uid, cluster.st_gid, follow_symlinks=False)

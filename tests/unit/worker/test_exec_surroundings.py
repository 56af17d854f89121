"""What a command's environment leaves out."""

import resource
from collections.abc import Iterator

import pytest

from sluicegate.errors import InvalidArgument
from sluicegate.worker.surroundings import allow_descriptors, base_environment

DSN = "postgresql://queue:secret@db.example.org/queue"


@pytest.mark.parametrize(
    "name",
    [
        "SLUICEGATE_DSN",
        "SLUICEGATE_TOKEN",
        "SLUICEGATE_METRICS_TOKEN",
        "SLUICEGATE_LEASE_TOKEN",
        "SLUICEGATE_ANYTHING_NEW",
        "PGHOST",
        "PGHOSTADDR",
        "PGPORT",
        "PGDATABASE",
        "PGUSER",
        "PGPASSWORD",
        "PGPASSFILE",
        "PGSERVICE",
        "PGSERVICEFILE",
        "PGOPTIONS",
        "PGSSLKEY",
        "PGSSLCERT",
    ],
)
def test_ways_to_the_database_and_secrets_are_left_out(name: str) -> None:
    assert base_environment({name.encode(): b"value", b"HOME": b"/root"}) == {b"HOME": b"/root"}


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG", "SLUICEGATE_DATA_DIR", "SLUICEGATE_SCOPE", "DATABASE_URL"])
def test_everything_else_is_passed_on(name: str) -> None:
    assert base_environment({name.encode(): b"caf\xe9"}) == {name.encode(): b"caf\xe9"}


def test_the_dsn_is_left_out_under_whatever_name_it_comes() -> None:
    environment = {b"DATABASE_URL": DSN.encode(), b"OTHER_URL": b"postgresql://elsewhere/app"}
    assert base_environment(environment, DSN) == {b"OTHER_URL": b"postgresql://elsewhere/app"}


@pytest.fixture
def limits() -> Iterator[None]:
    """The limits of this process, put back afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("limits")
def test_many_commands_at_a_time_raise_the_soft_limit_of_open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    allow_descriptors(1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256
    allow_descriptors(200)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 800


def test_more_commands_than_the_hard_limit_allows_are_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="commands at a time need") as refused:
        allow_descriptors(2**30)
    assert refused.value.field == "concurrency"

"""What a command's environment leaves out."""

import pytest

from sluicegate.worker.surroundings import base_environment

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

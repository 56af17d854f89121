"""The tests' own ground: servers, databases, and what a run says at its end."""

import psycopg
import pytest


@pytest.mark.both_versions
def test_an_empty_database_is_empty(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as connection:
        found = connection.execute("select count(*) from pg_namespace where nspname = 'sluicegate'").fetchone()
    assert found == (0,)

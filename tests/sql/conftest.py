"""Fixtures of the SQL tests."""

from pathlib import Path

import pytest

from tests.sql.small import THING, Small


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """A schema of the tests' own: one table, one function."""
    source = Small(tmp_path / "source")
    source.migration("0001_thing", THING)
    source.function("greet")
    return source

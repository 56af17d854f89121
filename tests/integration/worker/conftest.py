"""Fixtures for tests with workers."""

from tests.integration.worker.doors import work
from tests.integration.worker.fixtures import marked, start_worker

__all__ = ["marked", "start_worker", "work"]

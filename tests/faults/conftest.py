"""Fixtures for tests with worker processes."""

from tests.integration.worker.fixtures import marked, start_worker

__all__ = ["marked", "start_worker"]

"""The parts of a worker that need no database."""

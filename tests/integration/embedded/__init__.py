"""The private PostgreSQL: its life, the faults it survives, and what it refuses. Nothing here uses the shared server."""

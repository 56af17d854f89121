"""Faults forced on real processes and a real PostgreSQL."""

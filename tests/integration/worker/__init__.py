"""Workers with real commands on a real PostgreSQL."""

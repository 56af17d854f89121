"""The database side: every table, every rule, and what brings them into a database."""

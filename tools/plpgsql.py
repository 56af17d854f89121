"""plpgsql_check over every function of a freshly migrated database: unknown columns, wrong types, unused variables.

The extension exists as a Debian package for PostgreSQL 15, so a private copy of that server is started for it.
"""

import contextlib

import psycopg

from sluicegate.sql.migrate import migrate
from tests.support.requirements import missing
from tests.support.servers import TestRun

_FAULTS = """
    select p.proname, c.lineno, c.level, c.message, c.detail, c.hint
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace and n.nspname = 'sluicegate'
    join pg_language l on l.oid = p.prolang and l.lanname = 'plpgsql'
    left join pg_trigger t on t.tgfoid = p.oid
    cross join lateral plpgsql_check_function_tb(
        p.oid, coalesce(t.tgrelid, 0), fatal_errors := false, performance_warnings := false, security_warnings := true
    ) c
    -- A variable declared with a literal, such as jsonb := '[]', is no mistake.
    where not coalesce(c.detail like 'cast "text" value%' and c.context like '%local variable%initialization%', false)
    order by p.proname, c.lineno
"""

# Complaints that are wrong, each with its reason.
_ANSWERED = {
    ("enqueue_many", "control reached end of function without RETURN"),  # its loop ends by return or by an error only
}


class Unavailable(Exception):
    """The extension is not on this machine; the text says what would allow the check."""


def complaints() -> str:
    """One line for each fault, empty if there is none. Raises Unavailable."""
    for name in ("postgresql-15", "plpgsql_check"):
        if tool := missing(name):
            raise Unavailable(f"to run it: {tool.remedy}")
    run = TestRun.create()
    try:
        server = run.server("15")
        with contextlib.closing(psycopg.connect(server.dsn("postgres"), autocommit=True)) as connection:
            connection.execute("create extension plpgsql_check")
            migrate(connection)
            rows = connection.execute(_FAULTS, prepare=False).fetchall()
    finally:
        run.stop()
        run.remove()
    open_rows = [row for row in rows if (row[0], row[3]) not in _ANSWERED]
    return "\n".join(" ".join(str(value) for value in row if value is not None) for row in open_rows)

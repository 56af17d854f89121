"""How much a statement reads: pages and rows, whatever the speed of the machine, and everything inside functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

# Rows that table scans returned and index entries that index scans returned, whether their rows were visible or not.
_ROWS = """
    select sum(pg_stat_get_xact_tuples_returned(c.oid))::bigint
    from pg_class c
    where c.relnamespace = 'sluicegate'::regnamespace and c.relkind in ('r', 'i')
"""


@dataclass(frozen=True)
class Reads:
    """``pages`` of the buffer cache that were looked at, and ``rows`` and index entries that scans came by."""

    pages: int
    rows: int

    def within(self, base: Reads, factor: float = 3.0) -> bool:
        return self.pages <= factor * base.pages and self.rows <= factor * base.rows


def reads(connection: psycopg.Connection[Any], statement: str, *values: Any, before: str | None = None) -> Reads:
    """What ``statement`` reads, after ``before``; both in a transaction that is rolled back.

    The least of three runs: the first may plan, and step over what an earlier roll-back has left behind.
    """
    seen = [_once(connection, statement, values, before) for _ in range(3)]
    return Reads(min(one.pages for one in seen), min(one.rows for one in seen))


def _once(connection: psycopg.Connection[Any], statement: str, values: tuple[Any, ...], before: str | None) -> Reads:
    connection.execute("begin")
    try:
        if before is not None:
            connection.execute(before)
        rows = _number(connection, _ROWS)
        explained = connection.execute(f"explain (analyze, buffers, timing off, format json) {statement}", values)
        (answer,) = explained.fetchall()
        plan = answer[0][0]["Plan"]
        return Reads(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], _number(connection, _ROWS) - rows)
    finally:
        connection.execute("rollback")


def _number(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])

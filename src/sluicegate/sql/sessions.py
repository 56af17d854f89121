"""Naming the other sessions of the database, so that a message can say who is in the way and since when."""

from __future__ import annotations

from typing import Any

import psycopg

__all__ = ["DESCRIBE", "lock_holder", "table_holders"]

# A session in words. "a" is its pg_stat_activity row; what the reader may not see of it is left out.
DESCRIBE = """\
format('pid %s (%s)', a.pid, concat_ws(', ',
    'application "' || nullif(a.application_name, '') || '"', 'role ' || a.usename,
    a.state || coalesce(' for ' || round(extract(epoch from clock_timestamp() - a.state_change)) || ' s', ''),
    'transaction open for ' || round(extract(epoch from clock_timestamp() - a.xact_start)) || ' s'))"""

_LOCK_HOLDER = f"""\
select {DESCRIBE}
from pg_locks l join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'advisory' and l.granted and l.objsubid = 1
    and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and l.classid::bigint = %(key)s::bigint >> 32 and l.objid::bigint = %(key)s::bigint & 4294967295
"""

_TABLE_HOLDERS = f"""\
select {DESCRIBE}
from pg_stat_activity a
where a.pid <> pg_backend_pid() and a.pid in (
    select l.pid
    from pg_locks l join pg_class c on c.oid = l.relation
    where l.granted and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = 'sluicegate')
        and l.database = (select d.oid from pg_database d where d.datname = current_database()))
order by a.xact_start limit 3
"""


def lock_holder(cursor: psycopg.Cursor[tuple[Any, ...]], key: int) -> str | None:
    """The session that holds advisory lock ``key`` of this database, in words."""
    row = cursor.execute(_LOCK_HOLDER, {"key": key}, prepare=False).fetchone()
    return None if row is None else str(row[0])


def table_holders(cursor: psycopg.Cursor[tuple[Any, ...]]) -> str | None:
    """Up to three sessions that hold a lock on one of our tables, oldest transaction first, in words."""
    rows = cursor.execute(_TABLE_HOLDERS, prepare=False).fetchall()
    return "; ".join(row[0] for row in rows) or None

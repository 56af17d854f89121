"""Naming the other sessions of the database, so that a message can say who is in the way and since when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

__all__ = ["DESCRIBE", "SnapshotHolder", "hidden_sessions", "lock_holder", "snapshot_holders", "table_holders"]

# A session in words. "a" is its pg_stat_activity row; what the reader may not see of it is left out.
DESCRIBE = """\
('pid ' || a.pid || ' (' || concat_ws(', ',
    'application "' || nullif(a.application_name, '') || '"', 'role ' || a.usename,
    a.state || coalesce(' for ' || round(extract(epoch from clock_timestamp() - a.state_change)) || ' s', ''),
    'transaction open for ' || round(extract(epoch from clock_timestamp() - a.xact_start)) || ' s') || ')')"""

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


# Whoever holds back vacuum in this database. A slot has no start time: only how many transactions it lies behind.
_SNAPSHOT_HOLDERS = f"""\
select {DESCRIBE}, age(coalesce(a.backend_xmin, a.backend_xid)),
    extract(epoch from clock_timestamp() - coalesce(a.xact_start, a.backend_start))::float8,
    format('select pg_terminate_backend(%s);', a.pid), a.pid, a.application_name, a.state
from pg_stat_activity a
where a.pid <> pg_backend_pid() and coalesce(a.backend_xmin, a.backend_xid) is not null
    and (a.datname = current_database() or a.datname is null) and a.backend_type <> 'autovacuum worker'
union all
select format('prepared transaction %L of role %s', x.gid, x.owner), age(x.transaction),
    extract(epoch from clock_timestamp() - x.prepared)::float8, format('rollback prepared %L;', x.gid),
    null, null, 'prepared'
from pg_prepared_xacts x where x.database = current_database()
union all
select format('replication slot %s (%s)', s.slot_name, s.state), age(s.xmin), null,
    format('select pg_drop_replication_slot(%L);', s.slot_name), s.active_pid, null, s.state
from (select r.*, case when r.active then 'active' else 'inactive' end as state from pg_replication_slots r) s
where s.xmin is not null
order by 2 desc
"""
_HIDDEN = """\
select count(*) from pg_stat_activity where query = '<insufficient privilege>' and datname = current_database()
"""


@dataclass(frozen=True, slots=True)
class SnapshotHolder:
    """What keeps an old snapshot: since how many transactions, and how many seconds if that is known.

    ``remedy`` is the statement that ends it; ``state`` is that of the session or slot, or ``prepared``.
    """

    words: str
    transactions: int
    seconds: float | None
    remedy: str
    pid: int | None
    application: str | None
    state: str | None


def snapshot_holders(cursor: psycopg.Cursor[tuple[Any, ...]]) -> list[SnapshotHolder]:
    """Everything that keeps vacuum from removing dead rows of this database, the longest behind first."""
    return [SnapshotHolder(*row) for row in cursor.execute(_SNAPSHOT_HOLDERS, prepare=False).fetchall()]


def hidden_sessions(cursor: psycopg.Cursor[tuple[Any, ...]]) -> int:
    """How many sessions of this database the current role may not look into."""
    row = cursor.execute(_HIDDEN, prepare=False).fetchone()
    return 0 if row is None else int(row[0])


def lock_holder(cursor: psycopg.Cursor[tuple[Any, ...]], key: int) -> str | None:
    """The session that holds advisory lock ``key`` of this database, in words."""
    row = cursor.execute(_LOCK_HOLDER, {"key": key}, prepare=False).fetchone()
    return None if row is None else str(row[0])


def table_holders(cursor: psycopg.Cursor[tuple[Any, ...]]) -> str | None:
    """Up to three sessions that hold a lock on one of our tables, oldest transaction first, in words."""
    rows = cursor.execute(_TABLE_HOLDERS, prepare=False).fetchall()
    return "; ".join(row[0] for row in rows) or None

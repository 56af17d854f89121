"""Dead row versions in our tables, and whether vacuum keeps up."""

from __future__ import annotations

from sluicegate.ops.checks.result import Check, Look

WHY = "Claims read past dead rows; vacuum has to remove them as fast as jobs turn over."

WARN_ROWS = 20_000

_TABLES = """\
select s.relname, s.n_dead_tup, s.n_live_tup, coalesce(greatest(s.last_vacuum, s.last_autovacuum)::text, 'never'),
    current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on'
from pg_stat_user_tables s where s.schemaname = 'sluicegate' order by s.n_dead_tup desc, s.relname
"""


def check_dead_rows(look: Look) -> Check:
    rows = look.cursor.execute(_TABLES, prepare=False).fetchall()
    facts: dict[str, object] = {
        "tables": [
            {"table": name, "dead": dead, "live": live, "last_vacuum": last} for name, dead, live, last, _ in rows
        ]
    }
    if not rows:
        return Check("dead_rows", "warn", "There are no tables of ours.", WHY, "Run: sluicegate migrate", facts=facts)
    total = sum(row[1] for row in rows)
    name, dead, live, last, automatic = rows[0]
    found = f"{total} dead rows in {len(rows)} tables; most in sluicegate.{name}: {dead} beside {live} live, last vacuumed {last}."
    if not automatic:
        step = "Set autovacuum and track_counts to on in postgresql.conf and reload."
        return Check("dead_rows", "fail", f"Autovacuum is off. {found}", WHY, step, facts=facts)
    if dead > max(WARN_ROWS, live):
        step = "See who holds the oldest snapshot (above), end it, and vacuum."
        return Check("dead_rows", "warn", found, WHY, step, (f"vacuum sluicegate.{name};",), facts)
    return Check("dead_rows", "ok", found, WHY, facts=facts)

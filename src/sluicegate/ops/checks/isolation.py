"""The defaults of new transactions."""

from __future__ import annotations

from sluicegate.ops.checks.result import Check, Look

WHY = "A claim that waited for a lock must see what was committed meanwhile, so the verbs refuse any level but READ COMMITTED."

_DEFAULTS = """\
select pg_is_in_recovery(), quote_ident(current_user), quote_ident(current_database()), s.name, s.setting, s.source
from pg_settings s where s.name in ('default_transaction_isolation', 'default_transaction_read_only') order by s.name
"""
_WANTED = {"default_transaction_isolation": "read committed", "default_transaction_read_only": "off"}


def check_isolation(look: Look) -> Check:
    # What the check's own transaction was set to does not change the defaults.
    rows = look.cursor.execute(_DEFAULTS, prepare=False).fetchall()
    standby, role, database = rows[0][:3]
    settings = {name: (value, source) for *_, name, value, source in rows}
    level, read_only = (settings[name][0] for name in _WANTED)
    facts = {"default_transaction_isolation": level, "default_transaction_read_only": read_only, "standby": standby}
    if standby:
        step = "Connect to the primary: name every host in the DSN and add target_session_attrs=read-write."
        return Check(
            "isolation",
            "fail",
            "The server is a standby, which takes no writes.",
            "Every verb writes.",
            step,
            facts=facts,
        )
    found = f"New transactions are {level.upper()}{', read only' if read_only == 'on' else ''}."
    wrong = {name: source for name, (value, source) in settings.items() if value != _WANTED[name]}
    if not wrong:
        return Check("isolation", "ok", found, WHY, facts=facts)
    whose = {"database": f"database {database}", "database user": f"role {role} in database {database}"}
    statements = tuple(
        f"alter {whose.get(source, f'role {role}')} set {name} = '{_WANTED[name]}';" for name, source in wrong.items()
    )
    step = f"It is set by: {', '.join(sorted({*wrong.values()}))}. Run the statement, then reconnect."
    return Check("isolation", "fail", found, WHY, step, statements, facts)

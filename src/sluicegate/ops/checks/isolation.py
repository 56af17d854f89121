"""The defaults of new transactions."""

from __future__ import annotations

from sluicegate.ops.checks.result import Check, Look

WHY = "A claim that waited for a lock must see what was committed meanwhile, so the verbs refuse any level but READ COMMITTED."

_DEFAULTS = """\
select current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only') = 'on',
    pg_is_in_recovery(), quote_ident(current_user), quote_ident(current_database()),
    (select s.source from pg_settings s where s.name = 'default_transaction_isolation')
"""


def check_isolation(look: Look) -> Check:
    row = look.cursor.execute(_DEFAULTS, prepare=False).fetchone()
    assert row is not None
    level, read_only, standby, role, database, source = row
    facts = {"default_transaction_isolation": level, "default_transaction_read_only": read_only, "standby": standby}
    found = f"New transactions are {level.upper()}{', read only' if read_only else ''}."
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
    if level == "read committed" and not read_only:
        return Check("isolation", "ok", found, WHY, facts=facts)
    whose = {"database": f"database {database}", "database user": f"role {role} in database {database}"}
    where = whose.get(source, f"role {role}")
    statements = (
        *(
            (f"alter {where} set default_transaction_isolation = 'read committed';",)
            if level != "read committed"
            else ()
        ),
        *((f"alter {where} set default_transaction_read_only = off;",) if read_only else ()),
    )
    step = f"It is set by: {source}. Run the statement, then reconnect."
    return Check("isolation", "fail", found, WHY, step, statements, facts)

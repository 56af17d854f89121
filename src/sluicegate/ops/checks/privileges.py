"""Whether the group roles exist, and whether every grant is as the function files declare."""

from __future__ import annotations

from sluicegate.ops.checks.result import Check, Look
from sluicegate.sql.grants import ROLES, create_role_statements, grants_query
from sluicegate.sql.source import load_source

WHY = "The roles let a worker run jobs without being able to change tables, functions or the clock."

_WHO = """\
select current_user::text, r.rolsuper,
    (select pg_get_userbyid(n.nspowner)::text from pg_namespace n where n.nspname = 'sluicegate'),
    array(select o.rolname::text from pg_roles o where o.rolname = any(%(roles)s) order by o.rolname),
    array(select o.rolname::text from pg_roles o where o.rolname = any(%(roles)s) and pg_has_role(o.oid, 'USAGE') order by o.rolname)
from pg_roles r where r.rolname = current_user
"""


def check_privileges(look: Look) -> Check:
    row = look.cursor.execute(_WHO, {"roles": [*ROLES]}, prepare=False).fetchone()
    assert row is not None
    user, superuser, owner, present, member = row
    missing = [role for role in ROLES if role not in present]
    query = grants_query(load_source(), only_own=False)
    wrong = [statement for (statement,) in look.cursor.execute(query, prepare=False).fetchall()]
    facts: dict[str, object] = {
        "role": user, "superuser": superuser, "owner": owner, "member_of": member, "missing_roles": missing, "wrong_grants": wrong,
    }  # fmt: skip
    acts = (
        "a superuser"
        if superuser
        else "the owner of the schema"
        if user == owner
        else f"a member of {', '.join(member) or 'none of our roles'}"
    )
    found = f"Connected as {user}, {acts}."
    if owner is None:
        return Check(
            "privileges", "warn", f"{found} There is no schema to check.", WHY, "Run: sluicegate migrate", facts=facts
        )
    if missing:
        found += f" Missing roles: {', '.join(missing)}."
        step = "A DBA runs these statements once for the cluster; then the owner runs: sluicegate migrate (it grants)."
        return Check("privileges", "warn", found, WHY, step, tuple(create_role_statements(missing)), facts)
    if wrong:
        found += f" {len(wrong)} grants are not as declared, for instance: {wrong[0]}."
        statements = tuple(f"{statement};" for statement in wrong)
        return Check("privileges", "fail", found, WHY, f"As {owner}, run: sluicegate migrate", statements, facts)
    if not superuser and user != owner and not member:
        step = f"As {owner} or a DBA: grant sluicegate_worker to {user}"
        return Check("privileges", "fail", found, WHY, step, (f"grant sluicegate_worker to {user};",), facts)
    return Check("privileges", "ok", f"{found} Roles and grants are as declared.", WHY, facts=facts)

"""Functions in the pre phase, while libraries of the version before still call them.

What vanished stays. What changed its arguments stays beside its successor, recorded as ``NAME(ARGUMENTS)``, unless the
successor answers every call that names its arguments as before. A run without a phase drops what was kept.
"""

from __future__ import annotations

import psycopg

from sluicegate.errors import SluicegateError
from sluicegate.sql.source import FunctionFile
from sluicegate.sql.texts import INSTALLED_SIGNATURE, function_text, record_function
from sluicegate.sql.turn import Cursor

__all__ = ["replace_beside"]

# The recorded form, if it is not the one that ships, and whether anybody but the owner may call it.
_BEFORE = f"""\
select p.oid::bigint, exists (select from aclexplode(p.proacl) g where g.grantee <> p.proowner)
from sluicegate.function_version v
join pg_proc p on p.proname = v.name and pg_get_function_identity_arguments(p.oid) = v.identity_arguments
where v.name = %(name)s and p.pronamespace = 'sluicegate'::regnamespace
    and (v.signature <> %(signature)s or v.installed_signature <> {INSTALLED_SIGNATURE})
"""

# How the form before and the new one, written last, stand to each other. They collide if some call fits both: PostgreSQL
# would have to choose, and refuses to where either has defaults left to fill in.
_STANDING = """\
with form as (
    select p.*, p.oid::bigint = %(before)s as before
    from pg_proc p
    where p.oid::bigint = %(before)s or p.oid = (
        select f.oid from pg_proc f where f.pronamespace = 'sluicegate'::regnamespace and f.proname = %(name)s
        order by age(f.xmin) limit 1
    )
), argument as (
    select f.before, n.name, f.proargtypes[n.ord - 1] as type, n.ord > f.pronargs - f.pronargdefaults as optional
    from form f
    cross join lateral (
        select x.name, (row_number() over (order by x.ord))::integer as ord
        from unnest(f.proargnames, f.proargmodes) with ordinality as x(name, mode, ord)
        where coalesce(x.mode, 'i') in ('i', 'b', 'v')
    ) n
), pair as (
    select b.name is not null as before, a.name is not null as after, coalesce(b.optional, true) as optional_before,
        coalesce(a.optional, true) as optional_after
    from (select * from argument where before) b
    full join (select * from argument where not before) a on a.name = b.name and a.type = b.type
), facts as (
    select coalesce(bool_and(p.after and (p.optional_after or not p.optional_before)) filter (where p.before), true)
            and coalesce(bool_and(p.optional_after) filter (where not p.before), true) as answers,
        coalesce(bool_and(p.before and p.after) filter (where not (p.optional_before and p.optional_after)), true) as collides
    from pair p
)
select case
        when (select count(*) from form) = 1 then 'same'
        when f.answers and (select count(distinct (x.prorettype, x.proretset)) from form x) = 1 then 'answers'
        when f.collides then 'collides'
        else 'beside'
    end
from facts f
"""

_KEEP = """\
insert into sluicegate.function_version as k
    (name, sha256, signature, identity_arguments, installed_signature, installed_sha256, library, applied_at)
select v.name || '(' || v.identity_arguments || ')', v.sha256, v.signature, v.identity_arguments, v.installed_signature,
    v.installed_sha256, v.library, v.applied_at
from sluicegate.function_version v where v.name = %s
on conflict (name) do nothing
"""


def replace_beside(cursor: Cursor, file: FunctionFile, library: str) -> None:
    """Create or replace one function and record it, keeping the form that older libraries call where they need it.

    Raises SluicegateError when they need it and both cannot stand beside each other.
    """
    found = cursor.execute(_BEFORE, {"name": file.name, "signature": file.signature}, prepare=False).fetchone()
    if found is None:
        cursor.execute(function_text(file, library), prepare=False)
        return
    before, called = found
    cursor.execute("savepoint beside", prepare=False)
    try:
        cursor.execute(file.text, prepare=False)
    except psycopg.errors.InvalidFunctionDefinition:
        standing = "collides"
    else:
        row = cursor.execute(_STANDING, {"name": file.name, "before": before}, prepare=False).fetchone()
        assert row is not None
        (standing,) = row
    if standing in {"same", "beside"}:
        if standing == "beside":
            cursor.execute(_KEEP, (file.name,), prepare=False)
        cursor.execute(record_function(file, library), prepare=False)
        return
    if standing == "collides" and called:
        raise SluicegateError(
            f"The new form of the function {file.name} cannot stand beside the one that older libraries call.",
            next_step="Stop what uses the older library, then run: sluicegate migrate, without --pre-only.",
        )
    cursor.execute("rollback to savepoint beside", prepare=False)
    cursor.execute(function_text(file, library), prepare=False)

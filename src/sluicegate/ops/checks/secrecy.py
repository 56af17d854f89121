"""Who can read the DSN, and what that lets them do: whoever reads it can do with the queue whatever we can."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sluicegate.ops.checks.result import Check, Circumstances, Look

WHY = "A job that can read the DSN can change its own limits and other people's jobs; exec never hands it to a job."

# Whether this role may change budgets, and which there are; without the schema, or with an old one, none.
_REACH = """\
select r.rolsuper or coalesce(pg_has_role((select n.nspowner from pg_namespace n where n.nspname = 'sluicegate'), 'member'), false)
        or exists (select from pg_roles a where a.rolname = 'sluicegate_admin' and pg_has_role(a.oid, 'member')),
    to_regclass('sluicegate.queue') is not null
from pg_roles r where r.rolname = current_user
"""
_BUDGETS = """\
select q.name from sluicegate.queue q where (to_jsonb(q) ->> 'governed')::boolean order by q.created_at, q.id limit 3
"""


def check_secrecy(look: Look) -> Check:
    """The finding with what the database says of our role: budgets that a job could change are worth a warning."""
    budgets: list[str] = []
    # A role that may not even look changes nothing; that it may not is another check's to tell.
    with suppress(psycopg.errors.InsufficientPrivilege):
        if look.cursor.execute(_REACH, prepare=False).fetchone() == (True, True):
            budgets = [name for (name,) in look.cursor.execute(_BUDGETS, prepare=False).fetchall()]
    return who_can_read(look.circumstances, budgets)


def who_can_read(circumstances: Circumstances, budgets: Sequence[str] | None) -> Check:
    """Who but us can read the DSN. ``budgets`` are queues whose budget our role may change; None: not known."""
    files = [path for path in circumstances.files if path.exists()]
    facts: dict[str, object] = {
        "origin": circumstances.origin,
        "files": [],
        "password_in_dsn": _password(circumstances.dsn),
        "jobs_can_read": _jobs_can_read(circumstances),
        "budgets": None if budgets is None else list(budgets),
    }
    open_to_others = {path: who for path in files if (who := readers(path))}
    facts["files"] = [{"path": str(path), "others": open_to_others.get(path)} for path in files]
    places = [str(path) for path in files]
    if circumstances.origin == "environment":
        places.append("the environment of this process")
    if circumstances.origin == "flag":
        places.append("the command line of this process")
    found = f"The DSN comes from {' and '.join(places) or 'the library itself'}."
    if open_to_others:
        named = "; ".join(f"{path} can be read by {who}" for path, who in open_to_others.items())
        step = "Run: chmod 600 " + " ".join(str(path) for path in open_to_others)
        return Check("secrecy", "fail", f"{found} {named}.", WHY, step, facts=facts)
    if circumstances.origin == "flag" and facts["password_in_dsn"]:
        found += " Command lines, and the password in this one, are shown to every user of the machine by ps."
        return Check(
            "secrecy", "fail", found, WHY, "Put the DSN into SLUICEGATE_DSN or a file of mode 0600.", facts=facts
        )
    if not _jobs_can_read(circumstances):
        return Check("secrecy", "ok", f"{found} Only {_user(os.geteuid())} and root can read it.", WHY, facts=facts)
    found += f" Jobs that run as {_user(_jobs_uid(circumstances))} can read it there"
    if budgets is None:
        found += "; which budgets they could change with it is not known, since the database was not reached."
        step = "Run sluicegate doctor again when the database can be reached."
        return Check("secrecy", "warn", found, WHY, step, facts=facts)
    if not budgets:
        return Check("secrecy", "ok", f"{found}; there is no budget that they could change with it.", WHY, facts=facts)
    found += f", and change the budget of {', '.join(budgets)} with it."
    return Check("secrecy", "warn", found, WHY, *_remedy(circumstances), facts=facts)


def _remedy(circumstances: Circumstances) -> tuple[str, tuple[str, ...]]:
    if os.geteuid() == 0:
        return (
            "Run the jobs as another user, for instance: exec QUEUE -- setpriv --reuid=USER --clear-groups COMMAND",
            (),
        )
    if circumstances.origin == "embedded":
        step = (
            "Run jobs that are not to be trusted with it from another user's account, over a PostgreSQL with a DSN: "
            "what one user's processes hold, they cannot hide from each other."
        )
        return step, ()
    role = "create role my_worker login password '…' in role sluicegate_worker;"
    return "Let workers connect as a role that may work and nothing else, and keep this DSN from their user.", (role,)


def readers(path: Path) -> str | None:
    """Who but the owner and root can read ``path`` by the modes of the file and of the folders above it; None: nobody."""
    mode = path.stat().st_mode
    folders = [folder.stat().st_mode for folder in path.resolve().parents]
    if mode & stat.S_IROTH and all(folder & stat.S_IXOTH for folder in folders):
        return "every user"
    group = path.stat().st_gid
    reachable = all(
        folder.stat().st_mode & stat.S_IXOTH or (folder.stat().st_mode & stat.S_IXGRP and folder.stat().st_gid == group)
        for folder in path.resolve().parents
    )
    return f"the group {_group(group)}" if mode & stat.S_IRGRP and reachable else None


def _jobs_uid(circumstances: Circumstances) -> int:
    return os.geteuid() if circumstances.jobs_uid is None else circumstances.jobs_uid


def _jobs_can_read(circumstances: Circumstances) -> bool:
    uid = _jobs_uid(circumstances)
    # The environment of a process is readable by its own user in /proc; so are files of mode 0600.
    return uid in {0, os.geteuid()}


def _password(dsn: str) -> bool:
    try:
        return "password" in conninfo_to_dict(dsn)
    except psycopg.Error:
        return False


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user id {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)

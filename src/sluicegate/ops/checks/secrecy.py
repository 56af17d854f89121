"""Who can read the DSN: whoever can, can do with the queue whatever we can."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sluicegate.ops.checks.result import Check, Circumstances

WHY = "A job that can read the DSN can change its own limits and other people's jobs; exec never hands it to a job."


def check_secrecy(circumstances: Circumstances) -> Check:
    files = [path for path in circumstances.files if path.exists()]
    facts: dict[str, object] = {
        "origin": circumstances.origin,
        "files": [],
        "password_in_dsn": _password(circumstances.dsn),
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
    found += f" Jobs that run as {_user(_jobs_uid(circumstances))} can read it there."
    step = "Run jobs as another user than the worker (for instance: exec QUEUE -- setpriv --reuid=… COMMAND), or connect with a role that is only a member of sluicegate_worker."
    return Check("secrecy", "warn", found, WHY, step, facts=facts)


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

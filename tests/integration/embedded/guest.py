"""A command that is attached: ``python guest.py DATA_DIR OPTIONS``, told what to do line by line.

It prints one JSON object when it is attached or refused, and one after each line it reads: ``renew``, ``open``,
``kill``, ``close``. It ends when its input does. It needs the standard library and Sluicegate only, so that any user's Python
can run it.
"""

import ctypes
import json
import os
import select
import signal
import sys
from pathlib import Path

from sluicegate.embedded import Attachment, attach
from sluicegate.errors import SluicegateError

PR_SET_CHILD_SUBREAPER = 36


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def facts(attachment: Attachment) -> dict[str, object]:
    names = ("dsn", "server_pid", "supervisor_pid", "server_version", "port", "notice", "is_open")
    return {name: getattr(attachment, name) for name in names} | {
        "socket_dir": str(attachment.socket_dir),
        "modules": sorted(name for name in sys.modules if "postgres" in name),
        "pid": os.getpid(),
    }


def kill_both(attachment: Attachment) -> list[str]:
    """Kill the server and the supervisor, so that neither can tidy up; what they are once they are dead."""
    assert attachment.supervisor_pid
    assert attachment.server_pid
    both = [os.pidfd_open(pid) for pid in (attachment.supervisor_pid, attachment.server_pid)]
    os.kill(attachment.supervisor_pid, signal.SIGSTOP)
    os.kill(attachment.server_pid, signal.SIGKILL)
    os.kill(attachment.supervisor_pid, signal.SIGKILL)
    for process in both:
        assert select.select([process], [], [], 30)[0], "killed, and alive after 30 s"
        os.close(process)
    return [state(attachment.supervisor_pid), state(attachment.server_pid)]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def main() -> None:
    options = json.loads(sys.argv[2])
    if options.pop("adopts_orphans", False):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if "bindir" in options:
        options["bindir"] = Path(options["bindir"])
    try:
        attachment = attach(Path(sys.argv[1]), **options)
        say(**facts(attachment))
        for line in sys.stdin:
            if line.strip() == "renew":
                renewed = attachment.renew()
                say(**facts(attachment), renewed=renewed)
            elif line.strip() == "open":
                say(is_open=attachment.is_open)
            elif line.strip() == "kill":
                say(states=kill_both(attachment))
            elif line.strip() == "close":
                attachment.close()
                say(is_open=attachment.is_open)
    except SluicegateError as error:
        say(**error.to_dict())


main()

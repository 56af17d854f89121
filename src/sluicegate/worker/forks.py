"""What a handler forks without exec is a copy of the whole worker: it must neither report the job nor run the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from typing import NoReturn

_WORDS = (
    b"sluicegate: a handler called os.fork, and its child came back to the worker. It ends here; the job goes on in the "
    b"parent. Leave such a child with os._exit or exec, or use subprocess or multiprocessing.\n"
)
_STATUS = 70


def end_children(owner: object) -> None:
    """While ``owner`` lives, a child that is forked in this thread, inside the event loop, ends before anything else runs there.

    The loop's connections are the parent's too: one byte sent or read by both spoils them.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    watched, looped = weakref.ref(owner), weakref.ref(loop)

    def in_child() -> None:
        loop = looped()
        if watched() is None or loop is None or threading.get_ident() != thread or not loop.is_running():
            return
        waiting = getattr(loop, "_ready", None)
        if waiting is None:  # a loop of another make: as soon as it can be
            loop.call_soon(end)
        else:
            waiting.appendleft(asyncio.Handle(end, (), loop))

    os.register_at_fork(after_in_child=in_child)


def end() -> NoReturn:
    """End this process, a child that should not be here, and nothing but it."""
    os.write(2, _WORDS)
    os._exit(_STATUS)

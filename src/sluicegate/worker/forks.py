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


class _Watched:
    """An event loop and its thread."""

    def __init__(self) -> None:
        self._loop = weakref.ref(asyncio.get_running_loop())
        self._thread = threading.get_ident()

    def end(self) -> None:
        """In a child: end it before anything else runs in this loop."""
        loop = self._loop()
        if loop is None or threading.get_ident() != self._thread or not loop.is_running():
            return
        waiting = getattr(loop, "_ready", None)
        if waiting is None:  # a loop of another make: as soon as it can be
            loop.call_soon(end)
        else:
            waiting.appendleft(asyncio.Handle(end, (), loop))


_watched: weakref.WeakKeyDictionary[object, _Watched] = weakref.WeakKeyDictionary()


def _in_child() -> None:
    for one in list(_watched.values()):
        one.end()


# Once for the process: a hook cannot be taken away again.
os.register_at_fork(after_in_child=_in_child)


def end_children(owner: object) -> None:
    """While ``owner`` lives, a child that is forked in this thread, inside the event loop, ends before anything else runs there.

    The loop's connections are the parent's too: one byte sent or read by both spoils them.
    """
    _watched[owner] = _Watched()


def end() -> NoReturn:
    """End this process, a child that should not be here, and nothing but it."""
    os.write(2, _WORDS)
    os._exit(_STATUS)

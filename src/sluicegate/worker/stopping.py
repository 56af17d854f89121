"""Being told to stop: once softly, twice at once, three times by the operating system's own means."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Whether a run was asked to stop: ``asked``, and whether ``at_once``."""

    def __init__(self) -> None:
        self.reason = ""
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()

    def ask(self, reason: str = "it was asked to") -> None:
        """Stop when what runs has ended. Asking again changes nothing."""
        if not self.asked.is_set():
            self.reason = reason
            self.asked.set()

    def insist(self, reason: str = "it was asked to") -> None:
        """As ``ask``; for the second time, stop at once."""
        if self.asked.is_set():
            self.at_once.set()
        self.ask(reason)


@contextmanager
def stopped_by_signals(stop: StopRequest) -> Iterator[None]:
    """Within, SIGTERM, SIGINT and SIGHUP insist on stopping; a third one has the effect it had before.

    One that is ignored (``nohup``) stays so. In a thread other than the main one, where signals cannot be handled, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: handler for number in _SIGNALS if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    handled: set[signal.Signals] = set()

    def give_back() -> None:
        for number in list(handled):
            handled.discard(number)
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])

    def heard(number: signal.Signals) -> None:
        stop.insist(f"{number.name} was received")
        if stop.at_once.is_set():
            give_back()

    for number in before:
        loop.add_signal_handler(number, heard, number)
        handled.add(number)
    try:
        yield
    finally:
        give_back()

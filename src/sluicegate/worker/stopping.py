"""Being told to stop: once softly, twice at once, three times by the operating system's own means."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


class _Signals:
    """The signals of this process, as long as any run wants to be stopped by them: it has one handler for each."""

    def __init__(self) -> None:
        self._stops: list[StopRequest] = []
        self._before: dict[signal.Signals, Any] = {}

    def add(self, stop: StopRequest) -> None:
        self._stops.append(stop)
        # Those of runs that end at once have been given back already.
        if self._before:
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if (before := signal.getsignal(number)) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._heard, number)
                self._before[number] = before

    def remove(self, stop: StopRequest) -> None:
        self._stops.remove(stop)
        if not self._stops:
            self._give_back()

    def _heard(self, number: signal.Signals) -> None:
        for stop in self._stops:
            stop.insist(f"{number.name} was received")
        if all(stop.at_once.is_set() for stop in self._stops):
            self._give_back()

    def _give_back(self) -> None:
        loop = asyncio.get_running_loop()
        while self._before:
            number, before = self._before.popitem()
            loop.remove_signal_handler(number)
            signal.signal(number, before)


_signals = _Signals()


@contextmanager
def stopped_by_signals(stop: StopRequest) -> Iterator[None]:
    """Within, SIGTERM, SIGINT and SIGHUP insist on stopping, for each run that wants that; a third one has the effect it had before.

    One that is ignored (``nohup``) stays so. In a thread other than the main one, where signals cannot be handled, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _signals.add(stop)
    try:
        yield
    finally:
        _signals.remove(stop)

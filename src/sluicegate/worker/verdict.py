"""How an attempt ended, as the finish that is reported: the table of exits."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from sluicegate.model import Claim, FinishItem
from sluicegate.worker.guardian.client import Exit
from sluicegate.worker.output import Tail

TRY_LATER = 75
# Seconds between SIGTERM and SIGKILL while the lease is ours.
KILL_GRACE = 5.0
# What fits an error message together with the words before it.
_LAST_WORDS = 12_000
_POLITE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class Interruption(Enum):
    """Why a running command was ended by its worker. Of several the first counts, unless a later one ``overrides``."""

    STOPPED = 1
    TIMED_OUT = 2
    CANCELLED = 3
    LOST = 4

    @property
    def overrides(self) -> bool:
        """Whether this decides what becomes of the job, whatever happened before."""
        return self in (Interruption.CANCELLED, Interruption.LOST)


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known when a command has ended. ``stopping``: the worker had been told to stop by then."""

    exit: Exit
    stdout: Tail
    stderr: Tail
    interruption: Interruption | None
    stopping: bool
    timeout: float | None
    later: datetime


def verdict(claim: Claim, ending: Ending) -> FinishItem | None:
    """The finish to report, None if the lease is not ours any more."""
    exit = ending.exit  # noqa: A001 - the word of the trade
    if ending.interruption is Interruption.LOST or exit.by_lease:
        return None
    match ending.interruption:
        case Interruption.CANCELLED:
            return FinishItem.failed(claim, f"The job was cancelled, so its command was ended ({_said(exit)}).")
        case Interruption.TIMED_OUT:
            return FinishItem.failed(
                claim,
                _explained(f"The command ran longer than its timeout of {ending.timeout:g} s and was killed.", ending),
            )
        case Interruption.STOPPED:
            return FinishItem.released(claim, reason=f"The worker was stopped and ended the command ({_said(exit)}).")
    if exit.code == 0:
        text, left_out = ending.stdout.end()
        return FinishItem.completed(claim, {"exit_code": 0, "stdout": text, "stdout_bytes_left_out": left_out})
    if exit.code == TRY_LATER:
        return FinishItem.released(
            claim,
            reason=_explained(f"The command asked to be tried later ({_said(exit)}).", ending),
            not_before=ending.later,
        )
    if exit.signal in _POLITE and ending.stopping:
        # Whoever stops the worker often signals its commands along with it; that is no fault of theirs.
        return FinishItem.released(claim, reason=f"The command was stopped together with its worker ({_said(exit)}).")
    if exit.code is not None:
        return FinishItem.failed(claim, _explained(f"The command ended with {_said(exit)}.", ending))
    hint = " If nobody sent it, the machine ran out of memory." if exit.signal == signal.SIGKILL else ""
    return FinishItem.failed(claim, _explained(f"The command was killed by {_said(exit)}.{hint}", ending))


def _said(exit: Exit) -> str:  # noqa: A002 - as above
    if exit.code is not None:
        return f"exit code {exit.code}"
    assert exit.signal is not None
    try:
        return f"signal {exit.signal}, {signal.Signals(exit.signal).name}"
    except ValueError:
        return f"signal {exit.signal}"


def _explained(what: str, ending: Ending) -> str:
    """What happened, followed by the command's last words: on standard error, else on standard output."""
    for tail, name in ((ending.stderr, ""), (ending.stdout, " Nothing on standard error; standard output ended:")):
        text, left_out = tail.end(_LAST_WORDS)
        if text.strip():
            cut = f"[{left_out:,} bytes before this are left out]\n" if left_out else ""
            return f"{what}{name}\n{cut}{text.strip(chr(10))}"
    return what

"""What a bulk enqueue says about itself, while it runs and when it ends."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sluicegate.cli.output import Output, Told, amended, count, encoded, write
from sluicegate.errors import SluicegateError

if TYPE_CHECKING:
    from datetime import datetime

    from sluicegate.model import EnqueuedMany


class Receipt:
    """Counts what is enqueued. In JSON the answer is written as it grows, so that a million jobs need no memory.

    Use it around the work: an error that passes through it is amended with what is enqueued and how to go on, and in
    JSON stands beside the jobs that were enqueued before it. ``delayed_to`` is what --delay came to.
    """

    def __init__(self, output: Output, request_id: str, delayed_to: datetime | None) -> None:
        self._output = output
        self.request_id = request_id
        self._delayed_to = delayed_to
        self._jobs = self._existing = 0
        self._ids: list[int] = []
        self._replayed = False
        self._progress = not output.json and sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear_progress()
        if error is None:
            if self._output.json:
                write(f"{self._open()}], {self._flag()}}}")
            else:
                write(self._sentence())
        elif isinstance(error, SluicegateError):
            self._explain(error)

    def add(self, answer: EnqueuedMany) -> None:
        """A chunk is enqueued."""
        if self._output.json:
            write(
                f"{self._open()}{', ' if self._jobs else ''}{', '.join(encoded(job.to_dict()) for job in answer)}",
                end="",
            )
        ids = [job.id for job in answer]
        self._ids = [min(self._ids[:1] + ids), max(self._ids[1:] + ids)]
        self._jobs += len(answer)
        self._existing += sum(not job.created for job in answer)
        self._replayed = self._replayed or answer.replayed

    def reached(self, end: int) -> None:
        """So many bytes of the source are done."""
        if self._progress:
            write(
                f"\r\033[K{count(self._jobs, 'job')} enqueued, {end:,} bytes read", end="", to=sys.stderr, at_once=True
            )

    def _explain(self, error: SluicegateError) -> None:
        if not self._jobs:
            raise amended(error, message=f"{error.message} Nothing was enqueued.") from error
        go_on = f"Then repeat the command with {self._same()}: what is enqueued is not enqueued again."
        explained = amended(
            error,
            message=f"{error.message} Before that, {self._sentence()}.",
            next_step=f"{error.next_step} {go_on}" if error.next_step else go_on,
        )
        if self._output.json:
            write(f'], {self._flag()}, "error": {encoded(explained.to_dict())}}}')
            raise Told(explained) from error
        raise explained from error

    def _same(self) -> str:
        if self._delayed_to is None:
            return f"--request-id {self.request_id}"
        return f"--request-id {self.request_id}, and --run-at {self._delayed_to.isoformat()} instead of --delay"

    def _open(self) -> str:
        return "" if self._jobs else '{"jobs": ['

    def _flag(self) -> str:
        return f'"replayed": {"true" if self._replayed else "false"}'

    def _sentence(self) -> str:
        if not self._jobs:
            return "There was nothing to enqueue."
        existing = f", {self._existing:,} of them there before under their dedup key" if self._existing else ""
        return f"enqueued {count(self._jobs, 'job')} (ids {self._ids[0]} to {self._ids[1]}{existing})"

    def _clear_progress(self) -> None:
        if self._progress:
            write("\r\033[K", end="", to=sys.stderr, at_once=True)

"""Many jobs from the lines of a file or a pipe, in chunks that are enqueued whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from sluicegate.cli.output import amended
from sluicegate.cli.reading import decoded, parsed_json
from sluicegate.errors import InvalidArgument

if TYPE_CHECKING:
    from sluicegate import NewJob

CHUNK_JOBS = 10_000
# JSON can be six times as long as the line it stands for, and one call takes 64 MiB.
CHUNK_BYTES = 8_388_608
_IN_CALL = re.compile(r"\bjobs\[(\d+)\]\.?")

MakeJob = Callable[[bytes], "NewJob | None"]


@dataclass(frozen=True)
class Chunk:
    """Up to 10,000 jobs, the line each came from, and how many bytes of the source they and all before them took."""

    jobs: tuple[NewJob, ...]
    lines: tuple[int, ...]
    end: int


def job_of_line(template: NewJob) -> MakeJob:
    """A line is the payload, as a JSON string, without its line end."""

    def make(line: bytes) -> NewJob:
        return replace(template, payload=decoded(line.removesuffix(b"\n").removesuffix(b"\r"), "payload"))

    return make


def job_of_json(template: NewJob) -> MakeJob:
    """A line is the payload, as JSON; blank lines are passed over."""

    def make(line: bytes) -> NewJob | None:
        text = decoded(line, "payload").strip()
        return replace(template, payload=parsed_json(text, "payload")) if text else None

    return make


def job_of_object(template: NewJob) -> MakeJob:
    """A line is a whole job: an object with its payload and other fields of its own; blank lines are passed over."""
    known = {field.name for field in fields(template)}

    def make(line: bytes) -> NewJob | None:
        text = decoded(line, "job").strip()
        if not text:
            return None
        given = parsed_json(text, "job")
        if not isinstance(given, dict):
            raise InvalidArgument(
                "job is not an object.", field="job", next_step='With --as-jobs a line is {"payload": …, "kind": …, …}.'
            )
        if unknown := sorted(set(given) - known):
            raise InvalidArgument(
                f"{unknown[0][:64]} is no field of a job.",
                field=unknown[0][:64],
                next_step=f"A job has {', '.join(sorted(known))}.",
            )
        return replace(template, **{name: _typed(name, value) for name, value in given.items()})

    return make


def _typed(name: str, value: Any) -> Any:
    """A field's JSON value as the model has it. What does not fit is left for the API to refuse."""
    from sluicegate import Backoff
    from sluicegate.ops.validate import parsed_moment

    if name == "run_at" and isinstance(value, str):
        return parsed_moment(value, "run_at")
    if name == "tags" and isinstance(value, list):
        return tuple(value)
    if name == "backoff" and isinstance(value, dict) and set(value) <= {"base_seconds", "max_seconds"}:
        return Backoff(**value)
    return value


def chunks(source: BinaryIO, make: MakeJob) -> Iterator[Chunk]:
    """The jobs of ``source`` in order. Raises InvalidArgument naming the line of a bad one, its whole chunk withheld."""
    jobs: list[NewJob] = []
    lines: list[int] = []
    number = size = end = 0
    while line := source.readline(CHUNK_BYTES + 1):
        number += 1
        size += len(line)
        end += len(line)
        job = _made(make, line, number)
        if job is not None:
            jobs.append(job)
            lines.append(number)
        if len(jobs) == CHUNK_JOBS or (size > CHUNK_BYTES and jobs):
            yield Chunk(tuple(jobs), tuple(lines), end)
            jobs, lines, size = [], [], 0
    if jobs:
        yield Chunk(tuple(jobs), tuple(lines), end)


def check(source: BinaryIO, make: MakeJob) -> None:
    """Go through all of ``source`` without sending anything. Raises InvalidArgument for the first bad line."""
    from sluicegate.ops import requests
    from sluicegate.settings import DEFAULT_SCOPE

    for chunk in chunks(source, make):
        with naming_lines(chunk):
            requests.enqueue_many(chunk.jobs, scope=DEFAULT_SCOPE, request_id=None)


@contextmanager
def naming_lines(chunk: Chunk) -> Iterator[None]:
    """Inside, an error about ``jobs[3].payload`` is one about the payload of the line that job came from."""
    try:
        yield
    except InvalidArgument as error:
        found = _IN_CALL.search(error.field or "")
        if found is None:
            raise
        field = _IN_CALL.sub("", error.field or "") or "job"
        said = _IN_CALL.sub("", error.message)
        raise _at_line(amended(error, message=said, field=field), chunk.lines[int(found[1])]) from error


def _made(make: MakeJob, line: bytes, number: int) -> NewJob | None:
    try:
        _check_length(line)
        return make(line)
    except InvalidArgument as error:
        raise _at_line(error, number) from error


def _check_length(line: bytes) -> None:
    if len(line) > CHUNK_BYTES:
        raise InvalidArgument(
            f"payload is larger than {CHUNK_BYTES:,} bytes.",
            field="payload",
            next_step="Store the data elsewhere and send a reference to it.",
        )


def _at_line(error: InvalidArgument, number: int) -> InvalidArgument:
    return amended(error, message=f"Line {number:,}: {error.message}")

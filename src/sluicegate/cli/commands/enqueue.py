"""``sluicegate enqueue``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO
from uuid import uuid4

from cyclopts import Parameter

from sluicegate.cli import bulk
from sluicegate.cli.arguments import Common, dashed, moment, seconds, whole
from sluicegate.cli.connection import connected
from sluicegate.cli.output import Output, local
from sluicegate.cli.reading import json_argument, refuse_file
from sluicegate.cli.receipt import Receipt
from sluicegate.errors import InvalidArgument

if TYPE_CHECKING:
    from sluicegate import NewJob, SyncClient


def run(
    queue: Annotated[str, Parameter(help="The queue; the first job makes it.")],
    payload: Annotated[
        str | None, dashed("payload", "JSON up to 1 MiB, or - for standard input; null unless given.", metavar="JSON")
    ] = None,
    /,
    *,
    from_lines: Annotated[
        str | None,
        dashed(
            "from_lines",
            "A job for each line of a file, or of standard input (-): the line is the payload, as text.",
            metavar="FILE",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        dashed(
            "from",
            "A job for each line of a file, or of standard input (-): the line is the payload, as JSON.",
            metavar="FILE",
            name="--from",
        ),
    ] = None,
    as_jobs: Annotated[
        bool,
        Parameter(help="With --from: a line is an object with payload, kind, priority, dedup_key, run_at and so on."),
    ] = False,
    kind: Annotated[str, Parameter(help="What sort of job it is, up to 128 bytes; none unless given.")] = "",
    title: Annotated[str, Parameter(help="What people see in lists, up to 512 bytes; none unless given.")] = "",
    tag: Annotated[tuple[str, ...], Parameter(help="A label; may be given up to 32 times; none unless given.")] = (),
    priority: Annotated[
        int | None, whole("priority", "-32768 to 32767, lower runs first; 10 or the parent's unless given.")
    ] = None,
    run_at: Annotated[
        datetime | None, moment("run_at", "Not before this time, e.g. 2030-01-31T09:30:00+01:00; at once unless given.")
    ] = None,
    delay: Annotated[
        float | None,
        seconds("delay", "Not before so many seconds from now, by the database's clock; at once unless given."),
    ] = None,
    dedup_key: Annotated[
        str | None,
        Parameter(
            help="While a job with this key is waiting or running, that one is answered and none is made; no key unless given."
        ),
    ] = None,
    parent: Annotated[int | None, whole("parent_id", "The job this one comes from.")] = None,
    max_attempts: Annotated[
        int, whole("max_attempts", "1 to 1000 attempts, then it is a dead letter; 5 unless given.")
    ] = 5,
    backoff_base: Annotated[
        float | None,
        seconds("backoff.base_seconds", "Wait before the second attempt, doubling each time; 30 unless given."),
    ] = None,
    backoff_max: Annotated[float | None, seconds("backoff.max_seconds", "The longest wait; 900 unless given.")] = None,
    request_id: Annotated[
        str | None,
        Parameter(
            help="Repeating an enqueue under the same id within 24 hours adds nothing and answers the same; not with --delay."
        ),
    ] = None,
    common: Common = Common(),
) -> None:
    """Add a job to a queue, or many.

    A payload is JSON, so text is quoted twice: once for the shell.

    sluicegate enqueue mail '{"to": "ada@example.org"}' --priority 5
    sluicegate enqueue greetings '"hello"' --delay 60
    git ls-files | sluicegate enqueue reviews --from-lines -

    Many jobs go in chunks of up to 10,000, each of them whole or not at
    all. A file is checked to its end before its first job is enqueued; from
    a pipe, a bad line stops the work, and the message says what is enqueued
    and how to go on without enqueueing anything twice.
    """
    from sluicegate import Backoff, NewJob

    sources = [path for path in (from_lines, from_) if path is not None]
    _check_forms(payload, sources, as_jobs=as_jobs, from_=from_, dedup_key=dedup_key, run_at=run_at, delay=delay)
    _check_repeatable(request_id, delay)
    backoff = None
    if backoff_base is not None or backoff_max is not None:
        base = Backoff().base_seconds if backoff_base is None else backoff_base
        backoff = Backoff(base, backoff_max)
    job = NewJob(
        queue,
        None if payload is None else json_argument(payload, "payload"),
        kind=kind,
        title=title,
        priority=priority,
        run_at=run_at,
        dedup_key=dedup_key,
        tags=tag,
        parent_id=parent,
        max_attempts=max_attempts,
        backoff=backoff,
    )
    output = Output(json=common.json)
    if not sources:
        with connected(common) as client:
            _one(client, _delayed(client, job, delay), request_id, output)
        return
    of_line = bulk.job_of_line if from_lines is not None else bulk.job_of_object if as_jobs else bulk.job_of_json
    with _opened(sources[0]) as source:
        if source.seekable():
            start = source.tell()
            bulk.check(source, of_line(job))
            source.seek(start)
        with connected(common) as client:
            delayed = _delayed(client, job, delay)
            receipt = Receipt(output, request_id or uuid4().hex, None if delay is None else delayed.run_at)
            _many(client, source, of_line(delayed), receipt)


def _check_forms(
    payload: str | None,
    sources: list[str],
    *,
    as_jobs: bool,
    from_: str | None,
    dedup_key: str | None,
    run_at: datetime | None,
    delay: float | None,
) -> None:
    if len(sources) + (payload is not None) > 1:
        raise InvalidArgument(
            "There is more than one payload.",
            field="payload",
            next_step="Give one of PAYLOAD, --from-lines and --from.",
        )
    if as_jobs and from_ is None:
        raise InvalidArgument("--as-jobs goes with --from only.", field="as_jobs", next_step="Add --from FILE.")
    if sources and dedup_key is not None:
        raise InvalidArgument(
            "One dedup_key for many jobs would make one job of them.",
            field="dedup_key",
            next_step="Give each its own: --from FILE --as-jobs, and a dedup_key in every line.",
        )
    if run_at is not None and delay is not None:
        raise InvalidArgument("--run-at and --delay exclude each other.", field="delay", next_step="Give one of them.")


def _check_repeatable(request_id: str | None, delay: float | None) -> None:
    if request_id is not None and delay is not None:
        raise InvalidArgument(
            "--delay counts from each start of the command, so under one --request-id a repeat would not be the same job.",
            field="delay",
            next_step="Use --run-at with the time itself, e.g. 2030-01-31T09:30:00+01:00.",
        )


def _delayed(client: SyncClient, job: NewJob, delay: float | None) -> NewJob:
    if delay is None:
        return job
    from sluicegate.ops import validate

    return replace(job, run_at=client.server_time() + timedelta(seconds=validate.seconds(delay, "delay")))


def _one(client: SyncClient, job: NewJob, request_id: str | None, output: Output) -> None:
    enqueued = client.enqueue(
        job.queue,
        job.payload,
        kind=job.kind,
        title=job.title,
        priority=job.priority,
        run_at=job.run_at,
        dedup_key=job.dedup_key,
        tags=job.tags,
        parent_id=job.parent_id,
        max_attempts=job.max_attempts,
        backoff=job.backoff,
        request_id=request_id,
    )
    if not enqueued.created:
        line = f"job {enqueued.id} has this dedup key already and is {enqueued.state}: none was made"
    else:
        when = f", for {local(job.run_at)}" if enqueued.state == "scheduled" else ""
        line = f"job {enqueued.id} is {enqueued.state} in {enqueued.queue}{when}"
    output.answer(enqueued.to_dict(), line)


def _many(client: SyncClient, source: BinaryIO, make: bulk.MakeJob, receipt: Receipt) -> None:
    with receipt:
        for at, chunk in enumerate(bulk.chunks(source, make)):
            with bulk.naming_lines(chunk):
                receipt.add(client.enqueue_many(chunk.jobs, request_id=f"{receipt.request_id}/{at}"))
            receipt.reached(chunk.end)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below; errors of the work inside are not errors of this file
    except OSError as error:
        refuse_file(path, error, "from")
    with file:
        yield file

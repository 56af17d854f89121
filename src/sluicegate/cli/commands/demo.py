"""``sluicegate demo``."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sluicegate.cli.arguments import Common, whole
from sluicegate.cli.connection import Place, located, worker_name
from sluicegate.cli.demo_budget import run_under_a_budget
from sluicegate.cli.demo_report import Progress, Summary, lines
from sluicegate.cli.output import Output, span
from sluicegate.errors import InvalidArgument

if TYPE_CHECKING:
    from sluicegate import Client, NewJob

MAX_FILES = 9_999
# Isolated and without site packages, so that a start costs as little as it can; and nothing is written anywhere.
COMPILE = "import sys; source = open(sys.argv[1], 'rb').read(); compile(source, sys.argv[1], 'exec'); print(len(source.splitlines()), 'lines compile')"
BROKEN = '''\
"""This file is part of the demonstration: it does not compile."""


def unfinished(name:
    return f"Hello {name}"
'''
RETRY_SECONDS = 0.3


def run(
    *,
    files: Annotated[
        int, whole("count", "How many files to compile: 1 to 9999, 100 unless given.", name="--count")
    ] = 100,
    concurrency: Annotated[
        int | None, whole("concurrency", "How many processes at once: 1 to 1000; one for each processor unless given.")
    ] = None,
    common: Common = Common(),
) -> None:
    """Run real jobs: compile the files of this Python's standard library.

    Each file is a job in a queue of its own, and each job a process. First
    the queue has a budget, 10 an hour and 2 at once: 10 start, the rest is
    deferred. Then it is raised, and the rest runs. One more file, made for
    the purpose, does not compile; it is tried twice and ends as a dead
    letter with the compiler's message.

    sluicegate demo
    """
    import asyncio
    import tempfile

    from sluicegate.ops import validate
    from sluicegate.ops.installation import migrate_database

    validate.whole(files, "count", 1, MAX_FILES)
    processes = validate.whole((os.cpu_count() or 2) if concurrency is None else concurrency, "concurrency", 1, 1000)
    output = Output(json=common.json)
    sources = _library_files(files)
    started = time.monotonic()
    with located(common) as place, tempfile.TemporaryDirectory(prefix="sluicegate-demo-") as scratch:
        if place.attachment is not None:
            migrate_database(place.dsn)
            took = span(time.monotonic() - started)
            output.note(f"PostgreSQL {place.attachment.server_version} is up in {place.settings.data_dir} ({took}).")
        broken = Path(scratch, "does_not_compile.py")
        broken.write_text(BROKEN)
        summary = asyncio.run(_compile(place, broken, sources, processes, output))
    output.answer(summary.to_dict(), *lines(summary, _options(common)))


def _options(common: Common) -> str:
    """What further commands need to find the same database; a DSN may hold a password and is not repeated."""
    options = [] if common.data_dir is None else ["--data-dir", str(common.data_dir)]
    options += [] if common.dsn is None else ["--dsn", "…"]
    return shlex.join(options).replace("'…'", "…")


async def _compile(place: Place, broken: Path, sources: list[Path], concurrency: int, output: Output) -> Summary:
    import secrets

    from sluicegate import Client

    queue = f"demo-{secrets.token_hex(3)}"
    total = len(sources) + 1
    async with Client(place.dsn, scope=place.settings.scope, worker=worker_name(None)) as client:
        await client.enqueue_many(_jobs(queue, broken, sources))
        output.note(f"{total:,} jobs are in the queue {queue}; a process compiles each of them.")
        return await _compiled(client, queue, total, concurrency, output)


def _library_files(wanted: int) -> list[Path]:
    """So many files of this Python's standard library, the top of it first. Raises InvalidArgument if there are fewer."""
    import sysconfig

    library = Path(sysconfig.get_path("stdlib"))
    beside = {"site-packages", "dist-packages", "test", "tests", "__pycache__", "lib2to3"}
    found = [path for path in library.rglob("*.py") if beside.isdisjoint(path.relative_to(library).parts)]
    if len(found) < wanted:
        raise InvalidArgument(
            f"This Python's standard library in {library} has {len(found):,} files, fewer than {wanted:,}.",
            field="count",
            next_step=f"Write --count {len(found)}." if found else "Install the sources of the standard library.",
        )
    return sorted(found, key=lambda path: (len(path.relative_to(library).parts), path))[:wanted]


def _jobs(queue: str, broken: Path, sources: list[Path]) -> list[NewJob]:
    """The jobs of a run. The one that fails comes first, so that its second attempt is due before the others are done."""
    from sluicegate import Backoff, NewJob

    once_more = Backoff(base_seconds=RETRY_SECONDS, max_seconds=RETRY_SECONDS)
    return [
        NewJob(
            queue,
            {"path": str(broken)},
            kind="compile",
            title=broken.name,
            priority=1,
            max_attempts=2,
            backoff=once_more,
        ),
        *(NewJob(queue, {"path": str(path)}, kind="compile", title=path.name) for path in sources),
    ]


async def _compiled(client: Client, queue: str, total: int, concurrency: int, output: Output) -> Summary:
    """Do all the jobs of a queue and sum up what the database says about them."""
    import asyncio

    from sluicegate.worker.exec import run_exec

    command = [sys.executable, "-I", "-S", "-c", COMPILE, "{payload.path}"]
    started = time.monotonic()
    with Progress(total, output) as progress:

        async def run() -> None:
            await run_exec(
                client, queue, command, concurrency=concurrency, drain=True, grace=5, on_event=progress.event
            )
            if progress.stopped:
                raise KeyboardInterrupt

        budget = await run_under_a_budget(client, queue, total, concurrency, run, progress.say)
        while True:
            await run()
            waiting = (await client.list_jobs(queue=queue, state="scheduled", limit=1)).jobs
            if not waiting:
                break
            until_due = (waiting[0].run_at - await client.server_time()).total_seconds()
            await asyncio.sleep(max(0.0, until_due))
    return await Summary.of(client, queue, concurrency, time.monotonic() - started, budget)

"""``sluicegate exec``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sluicegate.cli.arguments import Common, seconds, whole
from sluicegate.cli.connection import announce, settings, worker_name
from sluicegate.cli.narration import Narrator, document, ended, last_line
from sluicegate.cli.output import Output
from sluicegate.errors import InvalidArgument


async def run(
    queue: Annotated[str, Parameter(help="The queue to take jobs from.")],
    /,
    *command: Annotated[
        str, Parameter(name="COMMAND", help="What to run for each job, after --; {payload.a.b} stands for a value.")
    ],
    concurrency: Annotated[int, whole("concurrency", "How many at once: 1 to 1000, 1 unless given.")] = 1,
    lease: Annotated[
        int | None,
        whole(
            "lease_seconds",
            "Seconds a claim holds without a heartbeat: 1 to 86400, 300 unless given. It is kept while the command runs.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        seconds("timeout", "End a command that runs longer; its attempt has failed. No limit unless given."),
    ] = None,
    drain: Annotated[
        bool,
        Parameter(help="End when there is nothing left to take (what is deferred waits), instead of waiting for more."),
    ] = False,
    grace: Annotated[
        float, seconds("grace", "When stopped, how long running commands may go on; 30 unless given.")
    ] = 30.0,
    release_delay: Annotated[
        float, seconds("release_delay", "How long a job rests after its command ended with 75; 60 unless given.")
    ] = 60.0,
    worker: Annotated[str | None, Parameter(help="Who takes the jobs; USER@HOST unless given.")] = None,
    common: Common = Common(),
) -> None:
    """Run a command for each job of a queue, until it is stopped.

    The payload is on standard input, and in the file that
    SLUICEGATE_PAYLOAD_FILE names. There are SLUICEGATE_JOB_ID, _ATTEMPT,
    _QUEUE, _KIND and _LEASE_TOKEN, and never a DSN. No shell is involved.

    Exit status 0 completes the job, with the end of the output as its
    result; 75 gives it back for later; anything else fails the attempt,
    with the end of the error output. A queue that is closed by its budget
    is told, and waited for.

    Ctrl-C or SIGTERM takes no more jobs and lets the running commands end
    for --grace seconds, and 5 more after SIGTERM; a second one kills them
    at once, a third the worker. A job that is given back so has used up an
    attempt.

    In an argument {payload.a.b} is a value of the payload, {payload.list.0}
    a member of a list and {payload} all of it. Nothing else in braces is
    replaced. The worker itself ends with 0, also when stopped and whatever
    became of the jobs; 1 if it could not go on, 2 for wrong usage.

    sluicegate exec mail --concurrency 4 -- ./send.sh {payload.to}
    sluicegate exec reviews --drain --timeout 900 -- ./review {payload.pr}
    """
    from sluicegate import Client
    from sluicegate.worker.exec import run_exec

    if not command:
        raise InvalidArgument(
            "exec was given no command to run.",
            field="command",
            next_step="Write it after --: sluicegate exec QUEUE -- COMMAND …",
        )
    output = Output(json=common.json)
    announce(common, settings(common))
    name = worker_name(worker)
    client = Client(common.dsn, scope=common.scope, data_dir=common.data_dir, worker=name)
    told = Narrator(queue, grace)
    async with client:
        report = await run_exec(
            client,
            queue,
            command,
            concurrency=concurrency,
            lease_seconds=lease,
            timeout=timeout,
            drain=drain,
            grace=grace,
            release_delay=release_delay,
            on_event=lambda event: output.event(document(event, name), told.line(event)),
        )
    output.event(ended(report, name), last_line(report))

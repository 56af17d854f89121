"""``sluicegate work``."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sluicegate.cli.arguments import Common, seconds, whole
from sluicegate.cli.connection import announce, settings, worker_name
from sluicegate.cli.narration import Narrator, document, ended, last_line
from sluicegate.cli.output import Output
from sluicegate.errors import InvalidArgument, SluicegateError

if TYPE_CHECKING:
    from sluicegate.worker.handlers import App


def run(
    app: Annotated[str, Parameter(name="MODULE:APP", help="Where the App with the handlers is: package.module:name.")],
    /,
    *,
    lease: Annotated[
        int | None,
        whole(
            "lease_seconds",
            "Seconds a claim holds without a heartbeat: 1 to 86400, 300 unless given. It is kept while a handler runs.",
        ),
    ] = None,
    drain: Annotated[
        bool, Parameter(help="End when there is nothing left that could start, instead of waiting for more.")
    ] = False,
    grace: Annotated[
        float, seconds("grace", "When stopped, how long running handlers may go on; 30 unless given.")
    ] = 30.0,
    poll: Annotated[
        float, seconds("poll", "The longest wait before it looks for jobs that nobody told of; 1 unless given.")
    ] = 1.0,
    health: Annotated[
        str | None,
        Parameter(
            help="Answer /live, /ready and /health here: HOST:PORT, such as 127.0.0.1:8099; nowhere unless given."
        ),
    ] = None,
    health_file: Annotated[
        Path | None, Parameter(help="Keep the health in this file, as JSON; in none unless given.")
    ] = None,
    worker: Annotated[str | None, Parameter(help="Who takes the jobs; USER@HOST unless given.")] = None,
    common: Common = Common(),
) -> None:
    """Run the handlers of an app for the jobs of its queues, until stopped.

    The module is looked for in the current folder first. The worker ends
    with 0, also when stopped and whatever became of the jobs; 1 if it could
    not go on, 2 for wrong usage.

    Ctrl-C or SIGTERM takes no more jobs and lets the running ones end for
    --grace seconds, then cancels them; a second one cancels them at once, a
    third ends the process. A job that is given back so has used up an
    attempt. A handler that has not ended 6 s after it was cancelled (1 s
    after a second signal) is told, and left behind: another worker may do
    its job after its lease.

    sluicegate work reviews:app
    sluicegate work shop.jobs:app --drain
    """
    from sluicegate.cli.ending import run_and_leave

    run_and_leave(
        _work(
            _app(app),
            common,
            worker_name(worker),
            {"lease_seconds": lease, "grace": grace, "poll": poll, "drain": drain},
            health,
            health_file,
        )
    )


async def _work(
    handlers: App, common: Common, name: str, options: dict[str, Any], health: str | None, health_file: Path | None
) -> None:
    from sluicegate import Client, Worker
    from sluicegate.worker.probe import health_file as keep_file
    from sluicegate.worker.probe import http_probe

    output = Output(json=common.json)
    announce(common, settings(common))
    async with Client(common.dsn, scope=common.scope, data_dir=common.data_dir, worker=name) as client:
        words = Narrator(", ".join(handlers.capacity().queues), options["grace"])
        made = Worker(
            client,
            handlers,
            **options,
            on_event=lambda event: output.event(document(event, name), words.line(event)),
        )
        async with AsyncExitStack() as stack:
            if health is not None:
                host, port = stack.enter_context(http_probe(made.health, health))
                shown = f"[{host}]" if ":" in host else host
                url = f"http://{shown}:{port}/health"
                output.event(
                    {"event": "listening", "worker": name, "url": url}, f"Health: {url}, and /live and /ready there."
                )
            if health_file is not None:
                await stack.enter_async_context(keep_file(made.health, health_file))
            report = await made.run()
    output.event(ended(report, name), last_line(report))


def _app(where: str) -> App:
    from sluicegate import App

    module, colon, name = where.partition(":")
    if not (module and colon and name):
        raise InvalidArgument(
            f"{where!r} names no app.",
            field="module:app",
            next_step="Write the module and the name of its App: reviews:app.",
        )
    if module.endswith(".py") or "/" in module:
        meant = module.removesuffix(".py").strip("./").replace("/", ".")
        raise InvalidArgument(
            f"{module} is a file, and a module is wanted.",
            field="module:app",
            next_step=f"Did you mean {meant}:{name}?",
        )
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = import_module(module)
    except SluicegateError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise InvalidArgument(
                f"There is no module {error.name}.",
                field="module:app",
                next_step="Run it from the folder that holds the module, or install it.",
            ) from error
        raise InvalidArgument(
            f"{module} cannot be imported: {type(error).__name__}: {error}.",
            field="module:app",
            next_step=f"Mend it; python -c 'import {module}' shows where.",
        ) from error
    app = getattr(found, name, None)
    if not isinstance(app, App):
        raise InvalidArgument(
            f"{module} has no App called {name}." if app is None else f"{where} is no App.",
            field="module:app",
            next_step="Make one: app = sluicegate.App(), with handlers declared by @app.handler(queue=…).",
        )
    return app

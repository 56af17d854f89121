"""The assembled command line: which verbs there are, and what happens to an answer or an error."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Group, Parameter

from sluicegate.cli import usage
from sluicegate.cli.commands import COMMANDS, PREFIXES, Verb
from sluicegate.cli.ending import StillRunning
from sluicegate.cli.output import Output, Told, Unwritable
from sluicegate.errors import InvalidArgument, SluicegateError

REFUSED = 1
USAGE = 2

_HELP = "A work queue on PostgreSQL. Without a DSN, a private PostgreSQL is started when it is needed."
_EPILOGUE = """\
Every command takes --json, --dsn, --scope and --data-dir; `sluicegate COMMAND --help` shows the rest.
Exit status: 0 done, 1 refused, deferred, not found or out of reach, 2 wrong usage or an invalid argument.
"""


def build() -> App:
    """The parser with every verb; a verb's module is imported when it is used."""
    groups: dict[str, Group] = {}
    for at, command in enumerate(COMMANDS):
        groups.setdefault(command.group, Group(command.group, sort_key=at))
    app = App(
        name="sluicegate",
        help=_HELP,
        help_epilogue=_EPILOGUE,
        help_format="plaintext",
        version=_version,
        default_parameter=Parameter(negative=(), json_list=False, json_dict=False, show_default=False),
        group_commands=Group("About", sort_key=len(COMMANDS)),
        suppress_keyboard_interrupt=False,
    )
    parents: dict[tuple[str, ...], App] = {(): app}
    for at, command in enumerate(COMMANDS):
        for length in range(1, len(command.words)):
            words = command.words[:length]
            if words not in parents:
                parents[words] = App(
                    name=words[-1],
                    help=PREFIXES[words],
                    help_epilogue="",
                    group=groups[command.group],
                    sort_key=at,
                )
                parents[words[:-1]].command(parents[words])
        parents[command.words[:-1]].command(
            f"{command.module}:run",
            name=command.words[-1],
            group=groups[command.group],
            sort_key=at,
            help_epilogue="",
        )
    return app


def verb(app: App, command: Verb) -> App:
    """The parser of one verb in what ``build`` gives."""
    for word in command.words:
        app = app[word]
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; every error has been told by then."""
    tokens = usage.command_first(arguments)
    output = Output(json=usage.wants_json(tokens))
    try:
        return _run(tokens)
    except (KeyboardInterrupt, Unwritable, StillRunning):
        raise
    except Exception as error:  # noqa: BLE001 - told, or raised again for whoever debugs
        return _tell(error, tokens, output)


def leave(left: StillRunning, arguments: Sequence[str]) -> int:
    """Tell how the command has ended, and what is left running. The exit status, with which the process has to end now."""
    tokens = usage.command_first(arguments)
    output = Output(json=usage.wants_json(tokens))
    output.note(f"The process ends, although this has not: {left}.")
    if left.error is None:
        return 0
    if isinstance(left.error, Exception) and not isinstance(left.error, Unwritable):
        return _tell(left.error, tokens, output)
    raise left.error


def _tell(error: Exception, tokens: list[str], output: Output) -> int:
    if isinstance(error, Told):
        return _status(error.error)
    if isinstance(error, SluicegateError):
        output.error(usage.in_options(error, tokens))
        return _status(error)
    if os.environ.get("SLUICEGATE_DEBUG"):
        raise error
    output.error(usage.unexpected(error))
    return REFUSED


def _run(tokens: list[str]) -> int:
    app = build()
    words = tuple(itertools.takewhile(lambda token: not token.startswith("-"), tokens))
    if not words or words in PREFIXES:
        # Help shows the first sentence of every command, which only its module knows.
        for command in COMMANDS:
            verb(app, command)
    try:
        status = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        raise usage.explained(error) from error
    return status if isinstance(status, int) else 0


def _status(error: SluicegateError) -> int:
    return USAGE if isinstance(error, InvalidArgument) else REFUSED


def _version() -> str:
    from importlib.metadata import version

    return version("sluicegate")

"""Arguments that the parser refused, in the words of all our other errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from cyclopts import CycloptsError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from sluicegate.cli.commands import COMMANDS
from sluicegate.cli.output import amended
from sluicegate.errors import InvalidArgument, SluicegateError

# The options of every command; each but --json is followed by a value.
_EVERYWHERE = ("--dsn", "--scope", "--data-dir", "--json")
_SECRETS = ("--token", "--lease-token")
# The options that fill a field, where the two have different names.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "paused_until": ("--until",),
    "max_claims_per_window": ("--per-hour", "--per-day", "--per-week", "--per-month"),
    "max_in_flight": ("--max-in-flight",),
    "lease_seconds": ("--lease",),
    "grace": ("--grace",),
    "poll": ("--poll",),
    "timeout": ("--timeout",),
    "concurrency": ("--concurrency",),
    "interval": ("--interval",),
    "priority": ("--priority",),
    "limit": ("--limit",),
    "health": ("--health",),
    "health_file": ("--health-file",),
    "kind": ("--kind",),
    "state": ("--state",),
    "n": ("-n",),
    "before_id": ("--before",),
    "parent_id": ("--parent",),
    "base_seconds": ("--backoff-base",),
    "max_seconds": ("--backoff-max",),
    "retry_in_seconds": ("--retry-in",),
    "not_before": ("--not-before",),
    "attempts_limit": ("--attempts",),
    "max_attempts": ("--max-attempts",),
    "release_delay": ("--release-delay",),
    "tz": ("--tz",),
    "start": ("--start",),
    "weekday": ("--weekday",),
    "day": ("--day",),
}
_TOKEN_COMMANDS = ("heartbeat", "complete", "fail", "release")


def command_first(arguments: Sequence[str]) -> list[str]:
    """``sluicegate --json jobs`` means ``sluicegate jobs --json``: options before the command are put behind it."""
    at = 0
    while at < len(arguments) and arguments[at].partition("=")[0] in _EVERYWHERE:
        alone = arguments[at] == "--json" or "=" in arguments[at]
        at += 1 if alone else 2
    end = at + _words(arguments[at:])
    return [*arguments[at:end], *arguments[:at], *arguments[end:]]


def _words(arguments: Sequence[str]) -> int:
    """How many words of these are the name of a command, or the beginning of one; at least 1."""
    known = [command.words for command in COMMANDS]
    most = max(len(words) for words in known)
    fitting = [n for n in range(1, most + 1) if any(words[:n] == tuple(arguments[:n]) for words in known)]
    count = max(fitting, default=0)
    # A word that fits nothing was meant as one: it is refused by name.
    complete = tuple(arguments[:count]) in known or arguments[count : count + 1] == [] or arguments[count][:1] == "-"
    return count if complete else count + 1


def wants_json(tokens: Sequence[str]) -> bool:
    """Whether answers and errors are to be JSON, even if the rest cannot be understood."""
    ours = tokens[: tokens.index("--")] if "--" in tokens else tokens
    return "--json" in ours


def in_options(error: SluicegateError, tokens: Sequence[str]) -> SluicegateError:
    """The error in the words of the command line: an option instead of the API's field. ``field`` stays the API's."""
    field = getattr(error, "field", None)
    if not isinstance(error, InvalidArgument) or field is None:
        return error
    at = _OPTIONS.get(field.rpartition(".")[2], ())
    given = {token.partition("=")[0] for token in tokens}
    option = " or ".join(one for one in at if one in given) or None
    if option is None and field == "job_id":
        option = "ID"
    if option is None:
        return error
    written = re.compile(rf"(?<![\w.\[\]-]){re.escape(field)}(?![\w])")

    def said(text: str | None) -> str | None:
        return None if text is None else written.sub(option, text)

    return amended(error, message=said(error.message), next_step=said(error.next_step))


def explained(error: CycloptsError) -> InvalidArgument:
    """The parser's error with a field, where there is one, and with what to do next."""
    command = " ".join(("sluicegate", *(error.command_chain or ())))
    see = f"`{command} --help` shows what it takes."
    if isinstance(error, UnknownCommandError):
        return _unknown_command((error.unused_tokens or [""])[0], tuple(error.command_chain or ()))
    if isinstance(error, UnknownOptionError):
        option = (error.token.keyword or error.token.value).partition("=")[0]
        if option in _SECRETS:
            return InvalidArgument(
                "A lease token is never an argument: every user of this machine could read it there.",
                field="lease_token",
                next_step="Put it in SLUICEGATE_LEASE_TOKEN, or in a file (or a pipe): --token-file PATH (or -).",
            )
        hint = " A command with options of its own follows after --." if "exec" in command.split() else ""
        return InvalidArgument(f"`{command}` has no option {option}.", field=_field(option), next_step=see + hint)
    if isinstance(error, UnusedCliTokensError):
        # The words themselves are not repeated: one of them may be a secret.
        many = len(error.unused_tokens or ())
        if command.split()[-1] in _TOKEN_COMMANDS:
            see = f"A lease token is never an argument: use SLUICEGATE_LEASE_TOKEN or --token-file. {see}"
        return InvalidArgument(
            f"`{command}` was given {many} {'argument' if many == 1 else 'arguments'} too many.",
            next_step=f"{see} A value with spaces needs quotes.",
        )
    name = _argument_name(error)
    return InvalidArgument(str(error), field=None if name is None else _field(name), next_step=see)


def _argument_name(error: CycloptsError) -> str | None:
    if error.argument is not None:
        return error.argument.name
    token = getattr(error, "token", None)
    return getattr(error, "keyword", None) or getattr(token, "keyword", None)


def unexpected(error: Exception) -> SluicegateError:
    """An error that no part of Sluicegate has foreseen."""
    return SluicegateError(
        f"Something unforeseen happened: {type(error).__name__}: {error}",
        next_step="Please report it, with what SLUICEGATE_DEBUG=1 shows; `sluicegate doctor` may tell more.",
    )


def _unknown_command(word: str, after: tuple[str, ...]) -> InvalidArgument:
    at = len(after)
    if word.startswith("-"):
        return InvalidArgument(
            f"`{' '.join(('sluicegate', *after))}` was given no command.",
            field="command",
            next_step=f"`{' '.join(('sluicegate', *after))} --help` lists them.",
        )
    known = {command.words[at] for command in COMMANDS if command.words[:at] == after and len(command.words) > at}
    near = get_close_matches(word, sorted(known), n=1)
    prefix = " ".join(("sluicegate", *after))
    meant = f"Did you mean `{prefix} {near[0]}`? " if near else ""
    return InvalidArgument(
        f"There is no command {' '.join((*after, word))!r}.",
        field="command",
        next_step=f"{meant}`{prefix} --help` lists them.",
    )


def _field(name: str) -> str:
    return name.lstrip("-").lower().replace("-", "_")

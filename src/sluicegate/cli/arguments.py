"""The arguments that commands share, and how their text becomes a value: strictly, and with the API's field names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from sluicegate.errors import InvalidArgument

if TYPE_CHECKING:
    from cyclopts import Token

_WHOLE = re.compile(r"[+-]?[0-9]{1,100}")
_NEGATIVE = re.compile(r"-($|[0-9])")
_EVERYWHERE = Group("Everywhere", sort_key=100)


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """The options of every command. What is not given comes from the environment, the configuration file, or defaults."""

    json: Annotated[bool, Parameter(group=_EVERYWHERE, help="Answer, and refuse, in JSON on standard output.")] = False
    dsn: Annotated[
        str | None,
        Parameter(
            group=_EVERYWHERE,
            help="The PostgreSQL to use, as a URI or host=… dbname=…; else SLUICEGATE_DSN; else a private one is started.",
        ),
    ] = None
    scope: Annotated[
        str | None,
        Parameter(
            group=_EVERYWHERE,
            help="Whose queues: endpoint:SLUG, endpoint:SLUG@OWNER or team:SLUG; else SLUICEGATE_SCOPE.",
        ),
    ] = None
    data_dir: Annotated[
        Path | None,
        Parameter(group=_EVERYWHERE, help="Where the private PostgreSQL keeps its data; else SLUICEGATE_DATA_DIR."),
    ] = None


def whole(field: str, help: str, *, name: str | tuple[str, ...] | None = None) -> Parameter:  # noqa: A002
    """A whole number; the range is for the API to judge. The parser alone would round 1.5 to 2 and take 0x10."""

    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise InvalidArgument(
                f"{field} is {text!r}, not a whole number.", field=field, next_step="Write digits only, e.g. 5 or -5."
            )
        return int(text)

    return Parameter(help=help, name=name, converter=_converter(read), metavar="N")


def limit(field: str, help: str, metavar: str = "N|none", *, option: str | None = None) -> Parameter:  # noqa: A002
    """A whole number, or ``none`` where the metavar says so; the range is for the API to judge."""

    def read(text: str) -> int | str:
        if text == "none" and metavar.endswith("none"):
            return text
        if not _WHOLE.fullmatch(text):
            raise InvalidArgument(
                f"{option or field} is {text!r}, not a whole number.",
                field=field,
                next_step="Write digits only, e.g. 100" + (", or none." if metavar.endswith("none") else "."),
            )
        return int(text)

    return Parameter(help=help, converter=_converter(read), metavar=metavar)


def seconds(field: str, help: str, *, name: str | None = None) -> Parameter:  # noqa: A002
    """A number of seconds that may be fractional."""

    def read(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise InvalidArgument(
                f"{field} is {text!r}, not a number.", field=field, next_step="Write seconds, e.g. 90 or 0.5."
            ) from None

    return Parameter(help=help, name=name, converter=_converter(read), metavar="SECONDS")


def moment(field: str, help: str, *, name: str | None = None) -> Parameter:  # noqa: A002
    """A time in ISO 8601 with a zone."""

    def read(text: str) -> datetime:
        from sluicegate.ops.validate import parsed_moment

        return parsed_moment(text, field)

    return Parameter(help=help, name=name, converter=_converter(read), metavar="TIME")


def _converter(read: Callable[[str], Any]) -> Callable[[Any, Sequence[Token]], Any]:
    def convert(_: Any, tokens: Sequence[Token]) -> Any:
        return read(tokens[0].value)

    return convert


def dashed(field: str, help: str, *, metavar: str, name: str | None = None) -> Parameter:  # noqa: A002
    """Text that may be a single ``-``, for standard input. Another option is not taken for it."""

    def read(text: str) -> str:
        if text.startswith("--") or (text.startswith("-") and metavar == "JSON" and not _NEGATIVE.match(text)):
            raise InvalidArgument(
                f"{text.partition('=')[0]} is no option here, and no value for {field}.",
                field=field,
                next_step=f"Write a value for {field}, or - for standard input. `--help` shows the options.",
            )
        return text

    return Parameter(help=help, name=name, converter=_converter(read), allow_leading_hyphen=True, metavar=metavar)


JobId = Annotated[int, whole("job_id", "The id of the job.", name="ID")]

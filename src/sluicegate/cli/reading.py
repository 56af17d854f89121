"""Text from arguments, files and pipes, and the JSON in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from sluicegate.errors import InvalidArgument

# More than any document of 1 MiB of JSON needs, however it is laid out.
MAX_BYTES = 16_777_216
_QUOTE = "Write JSON. Text is quoted twice, once for the shell: '\"text\"'. A single - reads it from standard input."


def parsed_json(text: str, field: str) -> Any:
    """The JSON value in ``text``; raises InvalidArgument naming ``field``."""
    try:
        return json.loads(text, parse_constant=lambda name: _refuse_constant(name, field))
    except json.JSONDecodeError as error:
        raise InvalidArgument(
            f"{field} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            field=field,
            next_step=_QUOTE,
        ) from None
    except RecursionError:
        raise InvalidArgument(
            f"{field} is nested too deep.", field=field, next_step="Flatten it, or send the inner part as text."
        ) from None
    except ValueError:
        raise InvalidArgument(
            f"{field} holds a number of more than 4,300 digits.", field=field, next_step="Send it as text."
        ) from None


def json_argument(given: str, field: str) -> Any:
    """The JSON value of an argument, which may be ``-`` for standard input."""
    return parsed_json(standard_input(field) if given == "-" else given, field)


def text_argument(given: str, field: str) -> str:
    """The text of an argument, which may be ``-`` for standard input."""
    return standard_input(field, errors="replace").removesuffix("\n") if given == "-" else given


def standard_input(field: str, *, errors: str = "strict") -> str:
    """Everything on standard input, up to 16 MiB."""
    return decoded(_limited(sys.stdin.buffer, field), field, errors=errors)


def file_text(path: str, field: str) -> str:
    """What a file holds, or standard input for ``-``."""
    if path == "-":
        return standard_input(field)
    try:
        with Path(path).open("rb") as file:
            return decoded(_limited(file, field), field)
    except OSError as error:
        refuse_file(path, error, field)


def decoded(data: bytes, field: str, *, errors: str = "strict") -> str:
    """``data`` as UTF-8."""
    try:
        return data.decode("utf-8", errors=errors)
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{field} is not UTF-8: byte {error.start + 1} is 0x{data[error.start]:02x}.",
            field=field,
            next_step="Convert it, for instance with iconv -t UTF-8.",
        ) from None


def refuse_file(path: str, error: OSError, field: str) -> NoReturn:
    """Raise InvalidArgument for a file that cannot be read."""
    raise InvalidArgument(
        f"Cannot read {path!r}: {error.strerror or error}.",
        field=field,
        next_step="Check the path, or give - for standard input.",
    ) from error


def _limited(stream: BinaryIO, field: str) -> bytes:
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InvalidArgument(
            f"{field} is larger than {MAX_BYTES:,} bytes.",
            field=field,
            next_step="Store the data elsewhere and send a reference to it.",
        )
    return data


def _refuse_constant(name: str, field: str) -> NoReturn:
    raise InvalidArgument(
        f"{field} holds {name}, which is not JSON.", field=field, next_step="Send null or text instead."
    )

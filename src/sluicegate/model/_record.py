"""What every model type shares: it is a frozen dataclass that reads and writes the API's own JSON object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Self, Union, cast, get_args, get_origin, get_type_hints

Reader = Callable[[Any], Any]


def instant(text: str | datetime) -> datetime:
    """A moment from the database or the API, as an aware datetime in UTC."""
    moment = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


class Record:
    """Base of the model's frozen dataclasses.

    ``from_dict`` takes the JSON object that SQL, HTTP and the command line print; keys it does not know are ignored,
    so that an older library reads what a newer database says. ``to_dict`` gives that object back. A field whose name
    ends in an underscore stands for the key without it.
    """

    __slots__ = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the JSON object ``data``; raises TypeError if a key without a default is missing."""
        plan = _plan(cast("Any", cls))
        try:
            return cls(**{name: data[key] if read is None else read(data[key]) for name, key, read in plan})
        except KeyError:
            present = [entry for entry in plan if entry[1] in data]
        return cls(**{name: data[key] if read is None else read(data[key]) for name, key, read in present})

    def to_dict(self) -> dict[str, Any]:
        """The API's JSON object, ready for ``json.dumps``: moments are ISO 8601 in UTC."""
        return {key: _plain(getattr(self, name)) for name, key, _ in _plan(cast("Any", type(self)))}


@cache
def _plan(cls: Any) -> tuple[tuple[str, str, Reader | None], ...]:
    hints = get_type_hints(cls)
    return tuple((field.name, field.name.rstrip("_"), _reader(hints[field.name])) for field in fields(cast("Any", cls)))


def _reader(hint: Any) -> Reader | None:
    """How a value of this type is read from JSON; None if it is already what JSON gives."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) and NoneType in arguments:
        return _optional(next(argument for argument in arguments if argument is not NoneType))
    if origin is tuple:
        return _sequence(arguments[0])
    if hint is datetime:
        return instant
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_dict
    return None


def _optional(hint: Any) -> Reader | None:
    read = _reader(hint)
    return None if read is None else lambda value: None if value is None else read(value)


def _sequence(hint: Any) -> Reader:
    read = _reader(hint)
    return tuple if read is None else lambda values: tuple(map(read, values))


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, tuple):
        return [_plain(member) for member in value]
    return value

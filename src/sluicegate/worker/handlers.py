"""Handlers: functions that do the jobs of a kind, declared with a decorator, and the arguments that they take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints, overload

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from sluicegate.errors import InvalidArgument
from sluicegate.model import Backoff, NewJob
from sluicegate.ops import validate
from sluicegate.worker.capacity import Capacity, QueueConfig, checked
from sluicegate.worker.context import Context, ThreadContext
from sluicegate.worker.outcomes import DeadLetter

Function = Callable[..., Any]
Settings = QueueConfig | Mapping[str, Any]
_MOST_TIMEOUT = 31_536_000.0


@dataclass(frozen=True, slots=True)
class Handler:
    """What does the jobs of ``kind`` in ``queue``: ``function``, called with the fields of the payload.

    ``timeout`` in seconds, None: none. ``max_attempts`` and ``backoff`` are for the jobs that ``job`` makes.
    """

    function: Function
    queue: str
    kind: str
    timeout: float | None
    max_attempts: int
    backoff: Backoff | None
    is_async: bool
    wants_context: str | None
    adapters: Mapping[str, TypeAdapter[Any]]
    required: frozenset[str]
    takes_payload: str | None

    @property
    def name(self) -> str:
        """That of its function."""
        return _name(self.function)

    def arguments(self, payload: Any) -> dict[str, Any]:
        """The payload as arguments of the function. Raises DeadLetter if it cannot be: no other attempt would help."""
        if self.takes_payload is not None:
            payload = {self.takes_payload: payload}
        elif payload is None:
            payload = {}
        elif not isinstance(payload, dict):
            raise DeadLetter(
                f"Handler {self.name} takes arguments by name, and the payload is no JSON object but {validate.shown(payload)}."
            )
        found: dict[str, Any] = {}
        faults: list[str] = []
        for name, adapter in self.adapters.items():
            if name not in payload:
                continue
            try:
                found[name] = adapter.validate_python(payload[name])
            except ValidationError as error:
                faults.append(f"cannot take {name}: {_told(error)}")
        if len(found) == len(payload) and self.required <= found.keys():
            return found
        if missing := self.required - payload.keys():
            faults.insert(0, f"needs {', '.join(sorted(missing))}, and the payload lacks it")
        if unknown := payload.keys() - self.adapters.keys():
            faults.insert(0, f"does not take {', '.join(sorted(unknown))}")
        raise DeadLetter(f"Handler {self.name} {'; it '.join(faults)}.")

    def job(self, payload: Any = None, **fields: Any) -> NewJob:
        """A job for this handler, to be enqueued. ``payload`` is checked as it will be when it runs."""
        try:
            self.arguments(payload)
        except DeadLetter as error:
            raise InvalidArgument(str(error), field="payload", next_step="Correct the payload.") from error
        return NewJob(
            self.queue,
            payload,
            **{"kind": self.kind, "max_attempts": self.max_attempts, "backoff": self.backoff, **fields},
        )

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function itself, as in a test of it."""
        return self.function(*arguments, **named)


class App:
    """Handlers, and how many of their jobs run at once.

        app = App(queues={"reviews": {"weight": 3, "min_workers": 2}, "mail": {}}, global_max_workers=20)

        @app.handler(queue="reviews", timeout=600)
        async def review(context: Context, repository: str, number: int) -> dict:
            …

    With ``global_max_workers`` (1 to 10,000) all queues share so many slots, without it each has ``max_workers`` of its
    own; see ``QueueConfig``. A queue that only its handlers name has the default settings. Raises a named InvalidWorker
    for settings that do not fit together, whose ``field`` is the queue and the setting.
    """

    def __init__(
        self,
        queues: Mapping[str, Settings] | Iterable[tuple[str, Settings]] = (),
        *,
        global_max_workers: int | None = None,
    ) -> None:
        given = _pairs(queues)
        self._global_max_workers = global_max_workers
        self._handlers: dict[tuple[str, str], Handler] = {}
        if given or global_max_workers is not None:
            # What is wrong is said where it was written, not when the first worker starts.
            checked(given or {"default": {}}, global_max_workers)
        self._queues = dict(given)

    @overload
    def handler(self, function: Function, /) -> Handler: ...
    @overload
    def handler(
        self,
        /,
        *,
        queue: str = "default",
        kind: str | None = None,
        timeout: float | None = None,
        max_attempts: int = 5,
        backoff: Backoff | None = None,
    ) -> Callable[[Function], Handler]: ...
    def handler(
        self,
        function: Function | None = None,
        /,
        *,
        queue: str = "default",
        kind: str | None = None,
        timeout: float | None = None,
        max_attempts: int = 5,
        backoff: Backoff | None = None,
    ) -> Handler | Callable[[Function], Handler]:
        """Declare the function that does the jobs of ``kind`` (its own name unless given) in ``queue``.

        A parameter annotated ``Context`` (``ThreadContext`` in a function that is not async) gets the context; the
        others are filled from the payload, an object, and checked by their annotations. A single parameter called
        ``payload`` gets all of it. Functions that are not async run in threads. Kind ``*`` stands for every kind of the
        queue that has no handler of its own.

        ``timeout`` in seconds (above 0, up to a year; None: none) is how long an attempt may take. ``max_attempts`` (1 to
        1,000) and ``backoff`` are the retry policy of the jobs that ``Handler.job`` makes. Raises InvalidArgument, also
        for a function that cannot take a payload.
        """
        (name,) = validate.queue_names([queue])
        if timeout is not None and validate.seconds(timeout, "timeout", _MOST_TIMEOUT) == 0:
            raise InvalidArgument("timeout is 0.", field="timeout", next_step="Leave it out for none.")

        validate.whole(max_attempts, "max_attempts", 1, 1000)
        if backoff is not None:
            validate.backoff(backoff, "backoff")

        def declare(function: Function) -> Handler:
            _check(function)
            called = validate.text(kind if kind is not None else _name(function), "kind", 128)
            if (name, called) in self._handlers:
                raise InvalidArgument(
                    f"Queue {name} has two handlers for {called or 'jobs without a kind'}.",
                    field="kind",
                    next_step="Give one of them another kind, or another queue.",
                )
            made = self._handlers[name, called] = _handler(function, name, called, timeout, max_attempts, backoff)
            return made

        return declare if function is None else declare(function)

    @property
    def handlers(self) -> tuple[Handler, ...]:
        return tuple(self._handlers.values())

    def find(self, queue: str, kind: str) -> Handler | None:
        """Who does such a job: the handler of its kind, else of its queue one for jobs of any other (kind ``*``)."""
        return self._handlers.get((queue, kind)) or self._handlers.get((queue, "*"))

    def capacity(self) -> Capacity:
        """The settings of all queues that have a handler or were set. Raises InvalidWorker."""
        named = {queue: QueueConfig() for queue, _ in self._handlers}
        return checked({**named, **self._queues}, self._global_max_workers)


def _handler(
    function: Function, queue: str, kind: str, timeout: float | None, max_attempts: int, backoff: Backoff | None
) -> Handler:
    is_async = any(map(inspect.iscoroutinefunction, _bodies(function)))
    hints = _hints(function)
    context, adapters, required = None, {}, set()
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidArgument(
                f"{_name(function)} takes {parameter}, and a payload has named fields only.",
                field=name,
                next_step="Name every parameter.",
            )
        hint = hints.get(name, Any)
        if hint in (Context, ThreadContext):
            if (hint is Context) is not is_async:
                raise InvalidArgument(
                    f"{_name(function)} is {'' if is_async else 'not '}async and asks for a {hint.__name__}.",
                    field=name,
                    next_step="Use Context in async functions and ThreadContext in others.",
                )
            context = name
            continue
        if name == "context" and name not in hints:
            raise InvalidArgument(
                f"{_name(function)} has a parameter called context, and no annotation says whether it is the context.",
                field=name,
                next_step=f"Annotate it with {'Context' if is_async else 'ThreadContext'}; a field of the payload with its own type.",
            )
        adapters[name] = _adapter(function, name, hint)
        if parameter.default is parameter.empty:
            required.add(name)
    return Handler(
        function, queue, kind, timeout, max_attempts, backoff, is_async, context, adapters, frozenset(required),
        "payload" if set(adapters) == {"payload"} else None,
    )  # fmt: skip


def _pairs(queues: Any) -> list[tuple[str, Settings]]:
    """The settings of queues as they were given: a mapping, or pairs, of which a name may come twice."""
    given = queues.items() if isinstance(queues, Mapping) else queues
    pairs = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidArgument(
                f"queues holds {validate.shown(pair)}, and not a name with its settings.",
                field="queues",
                next_step='Write a mapping, such as {"mail": {"max_workers": 4}}.',
            )
    return pairs


def _check(function: Any) -> None:
    """Raises InvalidArgument for what can be seen not to do a job when it is called."""
    if not callable(function):
        raise InvalidArgument(
            f"{validate.shown(function)} cannot be called, so it is no handler.",
            field="handler",
            next_step="Declare a function; settings are named: @app.handler(queue=…).",
        )
    if any(inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body) for body in _bodies(function)):
        raise InvalidArgument(
            f"{_name(function)} holds a yield, so calling it does nothing yet.",
            field="handler",
            next_step="Return the result instead of yielding it.",
        )


def _bodies(function: Function) -> tuple[Any, ...]:
    """What is run by a call: the function itself, or what an object of a class of one's own is called by."""
    function = _whole(function)
    return function, getattr(type(function), "__call__", None)  # noqa: B004 - it is looked at, not for


def _told(error: ValidationError) -> str:
    return ", ".join(f"{'.'.join(map(str, one['loc']))} {one['msg']}".strip() for one in error.errors())


def _whole(function: Function) -> Function:
    """Without the arguments that it was given already."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _name(function: Function) -> str:
    function = _whole(function)
    return str(getattr(function, "__name__", type(function).__name__))


def _hints(function: Function) -> dict[str, Any]:
    body = _whole(function)
    try:
        return get_type_hints(
            body if inspect.isroutine(body) or inspect.isclass(body) else type(body).__call__, include_extras=True
        )
    except (NameError, TypeError) as error:
        raise InvalidArgument(
            f"The annotations of {_name(function)} cannot be read: {error}.",
            field="handler",
            next_step="Declare a function whose annotations name what its module knows.",
        ) from error


def _adapter(function: Function, parameter: str, hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint)
    except PydanticUserError as error:
        raise InvalidArgument(
            f"{_name(function)} takes {parameter} as {hint!r}, and nothing says how a payload becomes that.",
            field=parameter,
            next_step="Annotate it with something that pydantic knows how to check.",
        ) from error
